"""The networks by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from friendly_sam.lab.errors import did_you_mean
from friendly_sam.lab.models.digits import CNN, MLP
from friendly_sam.lab.models.efficientnet_lite import PIXEL_MEAN, PIXEL_STD, efficientnet_lite0
from friendly_sam.lab.models.pretrained import hugging_face, timm_model
from friendly_sam.lab.models.pyramidnet import PyramidNet
from friendly_sam.lab.models.resnet import ResNet
from friendly_sam.lab.models.resnet50 import ResNet50
from friendly_sam.lab.models.vgg import VGG, VGG8_STAGES, VGG16_STAGES
from friendly_sam.lab.models.wide_resnet import WideResNet


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What `fsam list` says of a network, and how it is made."""

    description: str
    """One line."""
    make: Callable[[int, int, int], nn.Module]
    """From (classes, in_channels, image_size) to the network."""
    pixels: tuple[float, float] | None = None
    """Mean and deviation that its weights expect pixels, from 0 to 1, to be normalised by; `None`:
    those of the data set."""


def _resnet8(width: int) -> Callable[[int, int, int], nn.Module]:
    return lambda classes, channels, size: ResNet(
        (1, 1, 1), width=width, classes=classes, in_channels=channels
    )


MODELS: dict[str, ModelInfo] = {
    "vgg16_bn": ModelInfo(
        description="VGG16 with BatchNorm, 15.3 M parameters; images of 16x16 and more",
        make=lambda classes, channels, size: VGG(
            VGG16_STAGES, classes=classes, in_channels=channels, image_size=size
        ),
    ),
    "resnet18": ModelInfo(
        description="ResNet-18 in its CIFAR form, 11.2 M parameters",
        make=lambda classes, channels, size: ResNet(
            (2, 2, 2, 2), width=64, classes=classes, in_channels=channels
        ),
    ),
    "wrn28_10": ModelInfo(
        description="Wide ResNet 28-10, 36.5 M parameters",
        make=lambda classes, channels, size: WideResNet(
            depth=28, widen=10, classes=classes, in_channels=channels
        ),
    ),
    "pyramidnet110": ModelInfo(
        description="PyramidNet-110, alpha 270, bottlenecks, 18.3 M parameters",
        make=lambda classes, channels, size: PyramidNet(
            depth=110, alpha=270, classes=classes, in_channels=channels
        ),
    ),
    "resnet50": ModelInfo(
        description="ResNet-50 in its ImageNet form, 25.6 M parameters; images of 32x32 and more",
        make=lambda classes, channels, size: ResNet50(
            classes=classes, in_channels=channels, image_size=size
        ),
    ),
    "resnet8": ModelInfo(
        description="ResNet-8 of width 16, 78 k parameters, for a CPU", make=_resnet8(16)
    ),
    "resnet8w32": ModelInfo(
        description="ResNet-8 of width 32, 309 k parameters", make=_resnet8(32)
    ),
    "resnet8w64": ModelInfo(
        description="ResNet-8 of width 64, 1.2 M parameters", make=_resnet8(64)
    ),
    "resnet8s2": ModelInfo(
        description="ResNet-8, stem and blocks of stride 2, 304 k parameters, for 32x32 on a CPU",
        make=lambda classes, channels, size: ResNet(
            (0, 1, 1, 1), width=16, classes=classes, in_channels=channels, stem_stride=2
        ),
    ),
    "vgg8_bn": ModelInfo(
        description="A small VGG with BatchNorm, five convolutions, for a CPU; 16x16 and more",
        make=lambda classes, channels, size: VGG(
            VGG8_STAGES, classes=classes, in_channels=channels, image_size=size, hidden=128
        ),
    ),
    "wrn10_2": ModelInfo(
        description="Wide ResNet 10-2, 0.3 M parameters, for a CPU",
        make=lambda classes, channels, size: WideResNet(
            depth=10, widen=2, classes=classes, in_channels=channels
        ),
    ),
    "efficientnet_lite0": ModelInfo(
        description="EfficientNet-Lite0 with ImageNet weights, 4.7 M parameters, for fine-tuning",
        make=lambda classes, channels, size: efficientnet_lite0(classes=classes),
        pixels=(PIXEL_MEAN, PIXEL_STD),
    ),
    "mlp": ModelInfo(
        description="Two hidden layers of 256 with ReLU, no BatchNorm, for 8x8 digits",
        make=lambda classes, channels, size: MLP(
            classes=classes, in_channels=channels, image_size=size
        ),
    ),
    "cnn": ModelInfo(
        description="Two convolutions with BatchNorm, for 8x8 digits",
        make=lambda classes, channels, size: CNN(classes=classes, in_channels=channels),
    ),
}
"""Every network that `build` knows by name; `hf:` and `timm:` names come on top."""


def build(name: str, *, classes: int, in_channels: int = 3, image_size: int = 32) -> nn.Module:
    """Make a network with fresh weights, drawn from torch's global generator.

    Args:
        name: A name of `MODELS`, `hf:<hub name or folder>` or `timm:<name>`.
        classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Side of the images.

    Returns:
        A module in training mode with `model(images) -> logits`.

    Raises:
        ValueError: Unknown name, or a setting that the network does not allow.
        FileNotFoundError: The folder of an `hf:` name is missing or holds no config.json.
        ImportError: A pretrained network without the package that it needs.
    """
    for argument, value in (
        ("classes", classes),
        ("in_channels", in_channels),
        ("image_size", image_size),
    ):
        if value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    prefix, _, rest = name.partition(":")
    if prefix == "hf" and rest:
        return hugging_face(rest, classes=classes, in_channels=in_channels, image_size=image_size)
    if prefix == "timm" and rest:
        return timm_model(rest, classes=classes, in_channels=in_channels)
    if name not in MODELS:
        hint = did_you_mean(name, MODELS)
        raise ValueError(
            f"unknown model {name!r}{hint}; choose one of {', '.join(MODELS)}, "
            "hf:<name or folder>, timm:<name>"
        )
    return MODELS[name].make(classes, in_channels, image_size)
