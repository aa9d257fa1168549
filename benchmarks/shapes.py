"""The parameter shapes of the networks that the benchmarks use; nothing is downloaded."""

from torch import Size

from friendly_sam.lab.models import build


def shapes(name: str) -> list[Size]:
    """The shapes of `resnet18`, `vit_s` or `vit_b`."""
    if name == "resnet18":
        return [parameter.shape for parameter in build("resnet18", classes=10).parameters()]
    width = {"vit_s": 384, "vit_b": 768}[name]
    block = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    stem = [(1, 1, width), (1, 197, width), (width, 3, 16, 16), (width,)]
    return [
        Size(shape) for shape in (*stem, *(12 * block), (width,), (width,), (1000, width), (1000,))
    ]
