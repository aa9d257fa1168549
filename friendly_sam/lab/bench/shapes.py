"""The parameter shapes of the networks that are measured; nothing is downloaded."""

from __future__ import annotations

import torch
from torch import Size, Tensor

from friendly_sam.lab.errors import LabError

TITLES = {
    "mlp": "MLP 784-1024-1024-10",
    "resnet18": "ResNet-18",
    "vit_s": "ViT-S",
    "vit_b": "ViT-B",
}
"""Names on the command line, and in tables."""


def shapes(name: str) -> list[Size]:
    """The shapes of a network of `TITLES`."""
    if name == "mlp":
        widths = (784, 1024, 1024, 10)
        pairs = zip(widths[1:], widths[:-1], strict=True)
        return [Size(shape) for out, into in pairs for shape in ((out, into), (out,))]
    if name == "resnet18":
        from friendly_sam.lab.models import build

        return [parameter.shape for parameter in build("resnet18", classes=10).parameters()]
    if name not in TITLES:
        raise LabError(f"unknown network {name!r}: choose from {', '.join(TITLES)}")
    width = {"vit_s": 384, "vit_b": 768}[name]
    block = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    stem = [(1, 1, width), (1, 197, width), (width, 3, 16, 16), (width,)]
    return [
        Size(shape) for shape in (*stem, *(12 * block), (width,), (width,), (1000, width), (1000,))
    ]


def draw(
    sizes: list[Size], *, seed: int, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Random tensors of these shapes."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=dtype).mul_(scale) for size in sizes]
