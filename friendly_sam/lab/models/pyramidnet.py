"""PyramidNet with bottleneck blocks (Han, Kim and Kim, 2017; arXiv:1610.02915)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from friendly_sam.lab.models.initialisation import he_initialise

EXPANSION = 4
STEM_CHANNELS = 16


class PyramidBottleneck(nn.Module):
    """BN-1x1-BN-ReLU-3x3-BN-ReLU-1x1-BN plus a shortcut without parameters.

    The shortcut averages 2x2 patches where the stride is 2, and fills the channels that the block
    adds with zeros.
    """

    def __init__(self, in_channels: int, channels: int, *, stride: int) -> None:
        super().__init__()
        out_channels = channels * EXPANSION
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.norm4 = nn.BatchNorm2d(out_channels)
        self.stride = stride
        self.added_channels = out_channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: smaller by the stride, wider than its input."""
        out = self.conv1(self.norm1(x))
        out = self.conv2(F.relu(self.norm2(out), inplace=True))
        out = self.conv3(F.relu(self.norm3(out), inplace=True))
        out = self.norm4(out)
        if self.stride != 1:
            x = F.avg_pool2d(x, self.stride, ceil_mode=True)
        total: Tensor = out + F.pad(x, (0, 0, 0, 0, 0, self.added_channels))
        return total


class PyramidNet(nn.Module):
    """Three stages whose width grows by the same amount in every block.

    Block k of n has width 16 + k * alpha / n, rounded half to even (Python's `round`, as in the
    authors' code; rounding half up would give other parameter counts).

    Args:
        depth: 9m + 2 with m bottlenecks a stage: 110 has 36 blocks in all.
        alpha: Total growth of the width.
        classes: Number of classes (depth 110, alpha 270: 18,323,787 parameters with 10).
        in_channels: Channels of the images.
    """

    def __init__(self, *, depth: int, alpha: int, classes: int, in_channels: int = 3) -> None:
        super().__init__()
        if depth < 11 or (depth - 2) % 9:
            raise ValueError(f"depth must be 9m + 2 with m >= 1, got {depth}")
        stage_blocks = (depth - 2) // 9
        growth = alpha / (3 * stage_blocks)
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, STEM_CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(STEM_CHANNELS),
        )
        layers: list[nn.Module] = []
        channels = STEM_CHANNELS
        for block in range(3 * stage_blocks):
            width = round(STEM_CHANNELS + (block + 1) * growth)
            stride = 2 if block in (stage_blocks, 2 * stage_blocks) else 1
            layers.append(PyramidBottleneck(channels, width, stride=stride))
            channels = width * EXPANSION
        self.stages = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(channels)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        features = F.relu(self.norm(self.stages(self.stem(images))), inplace=True)
        logits: Tensor = self.head(self.pool(features).flatten(1))
        return logits
