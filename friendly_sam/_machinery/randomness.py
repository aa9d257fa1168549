"""The same random numbers for two passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch


def random_state(tensors: Iterable[torch.Tensor]) -> Callable[[], None]:
    """Remember the generators of the CPU and of the tensors' devices.

    Calling the result sets them back.

    Example:
        >>> import torch
        >>> from friendly_sam._machinery.randomness import random_state
        >>> rewind = random_state([torch.ones(1)])
        >>> first = torch.rand(3)
        >>> rewind()
        >>> torch.equal(first, torch.rand(3))
        True
    """
    states = [
        (device, torch.get_device_module(device).get_rng_state(device))
        for device in {tensor.device for tensor in tensors}
        if device.type not in ("cpu", "meta")
    ]
    cpu = torch.get_rng_state()

    def rewind() -> None:
        torch.set_rng_state(cpu)
        for device, state in states:
            torch.get_device_module(device).set_rng_state(state, device)

    return rewind
