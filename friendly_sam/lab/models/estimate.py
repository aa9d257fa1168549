"""What a network will take of memory, counted on the `meta` device, where nothing has values."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from friendly_sam.lab.counting import counted
from friendly_sam.lab.memory import COPIES, FLOAT, fits, require
from friendly_sam.lab.models.registry import build

IMAGES = 2
"""Of the batch that is counted: BatchNorm refuses a single value of a channel."""
GROWTH = 10_000
"""More than any network here puts out for each number of an image."""


def check_memory(name: str, classes: int, image: tuple[int, int, int], batch: int) -> None:
    """Refuse a network that does not fit into memory, with the estimate.

    Args:
        name: which network of `MODELS`.
        classes: of the data.
        image: channels, height and width.
        batch: images that are computed at a time.
    """
    weights = count_weights(name, classes, image)
    require(
        COPIES * FLOAT * weights,
        f"training {name} with {weights:,} weights",
        "choose a smaller network, data.image_size or number of classes",
    )
    if fits(FLOAT * GROWTH * batch * math.prod(image)):
        return  # counting would take two seconds, for what torch imports to do it
    require(
        FLOAT * batch * count_outputs(name, classes, image),
        f"a batch of {counted(batch, 'image')} of {image[1]}x{image[2]} in {name}",
        "choose a smaller data.batch_size or data.image_size, or more engine.micro_batches",
    )


@lru_cache
def count_weights(name: str, classes: int, image: tuple[int, int, int]) -> int:
    """Return the number of weights."""
    return sum(parameter.numel() for parameter in _shapes(name, classes, image).parameters())


@lru_cache
def count_outputs(name: str, classes: int, image: tuple[int, int, int]) -> int:
    """Count the numbers that the layers make of an image: the backward pass needs most of them."""
    total = math.prod(image)

    def count(module: nn.Module, _: Any, output: Any) -> None:
        nonlocal total
        if isinstance(output, Tensor) and not any(True for _ in module.children()):
            total += output.numel() // IMAGES

    model = _shapes(name, classes, image)
    for module in model.modules():
        module.register_forward_hook(count)
    with torch.no_grad():
        model(torch.empty((IMAGES, *image), device="meta"))
    return total


def _shapes(name: str, classes: int, image: tuple[int, int, int]) -> nn.Module:
    """Build a network without values."""
    with torch.device("meta"):
        return build(name, classes=classes, in_channels=image[0], image_size=image[1])
