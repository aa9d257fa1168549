"""ResNet-50 in its ImageNet form, the stride in the 3x3 convolution as torchvision has it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from friendly_sam.lab.models.initialisation import he_initialise

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4
SMALLEST_IMAGE = 32


class Bottleneck(nn.Module):
    """relu(F(x) + x), with F a 1x1, a 3x3 and a widening 1x1 convolution."""

    def __init__(self, in_channels: int, channels: int, *, stride: int) -> None:
        super().__init__()
        out_channels = channels * EXPANSION
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: smaller by the stride."""
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out)) + self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet50(nn.Module):
    """A 7x7 stem that quarters the side, four stages of bottlenecks, global pooling.

    Args:
        classes: Number of classes (25,557,032 parameters with 1000).
        in_channels: Channels of the images.
        image_size: Side of the images, 32 at least; meant for 224.
    """

    def __init__(self, *, classes: int, in_channels: int = 3, image_size: int = 224) -> None:
        super().__init__()
        if image_size < SMALLEST_IMAGE:
            raise ValueError(
                f"resnet50 divides its input by 32: image_size must be at least {SMALLEST_IMAGE}, "
                f"got {image_size}"
            )
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        layers: list[nn.Module] = []
        channels = 64
        for stage, (width, count) in enumerate(STAGES):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(channels, width, stride=stride))
                channels = width * EXPANSION
        self.stages = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        features = self.pool(self.stages(self.stem(images)))
        logits: Tensor = self.head(features.flatten(1))
        return logits
