"""What a network will take of memory, counted on the `meta` device, where nothing has values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from friendly_sam.lab.memory import require

COPIES = 4
"""Of the weights: themselves, gradients, the base optimizer's state, w while it is perturbed."""
FLOAT = 4
"""Bytes."""


def check_memory(model: nn.Module, name: str, image: tuple[int, int, int], batch: int) -> None:
    """Refuse a network that does not fit into memory, with the estimate.

    Args:
        model: the network, built on the `meta` device.
        name: what it is called.
        image: channels, height and width.
        batch: images that are computed at a time.
    """
    weights = sum(parameter.numel() for parameter in model.parameters())
    require(
        COPIES * FLOAT * weights,
        f"training {name} with {weights:,} weights",
        "choose a smaller network, data.image_size or number of classes",
    )
    outputs = _outputs(model, torch.empty((batch, *image), device="meta"))
    require(
        FLOAT * outputs,
        f"a batch of {batch} images of {image[1]}x{image[2]} in {name}",
        "choose a smaller data.batch_size or data.image_size, or more engine.micro_batches",
    )


def _outputs(model: nn.Module, images: Tensor) -> int:
    """Count the numbers that the layers put out: the backward pass needs most of them."""
    total = images.numel()

    def count(module: nn.Module, _: Any, output: Any) -> None:
        nonlocal total
        if isinstance(output, Tensor) and not any(True for _ in module.children()):
            total += output.numel()

    hooks = [module.register_forward_hook(count) for module in model.modules()]
    try:
        with torch.no_grad():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return total
