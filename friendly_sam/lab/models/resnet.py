"""ResNet with basic blocks for small images (He et al., 2016; arXiv:1512.03385)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from friendly_sam.lab.models.initialisation import he_initialise


class BasicBlock(nn.Module):
    """relu(F(x) + x), with F two 3x3 convolutions; a 1x1 projection of x where shapes differ."""

    def __init__(self, in_channels: int, channels: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: smaller by the stride."""
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out)) + self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    """A 3x3 stem, stages of basic blocks that double the width and halve the side, global pooling.

    Args:
        blocks: Number of blocks of each stage: (2, 2, 2, 2) is ResNet-18, (1, 1, 1) ResNet-8.
        width: Channels of the first stage.
        classes: Number of classes.
        in_channels: Channels of the images.
        stem_stride: 2 halves the side at once, for a CPU.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        *,
        width: int,
        classes: int,
        in_channels: int = 3,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, stride=stem_stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        layers: list[nn.Module] = []
        channels = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(BasicBlock(channels, width << stage, stride=stride))
                channels = width << stage
        self.stages = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        features = self.pool(self.stages(self.stem(images)))
        logits: Tensor = self.head(features.flatten(1))
        return logits
