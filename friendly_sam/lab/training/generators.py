"""The random numbers of a process: the states of its generators, taken and put back."""

from __future__ import annotations

import torch

States = dict[str, torch.Tensor]


def generator_states(device: torch.device) -> States:
    """Return the states of the CPU's generator and of the device's."""
    states = {"cpu": torch.get_rng_state()}
    if device.type not in ("cpu", "meta"):
        states["device"] = torch.get_device_module(device).get_rng_state(device)
    return states


def set_generator_states(states: States, device: torch.device) -> None:
    """Put states back, so that the same random numbers come again."""
    torch.set_rng_state(states["cpu"])
    if "device" in states:
        torch.get_device_module(device).set_rng_state(states["device"], device)
