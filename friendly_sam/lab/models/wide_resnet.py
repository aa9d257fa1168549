"""Wide ResNet (Zagoruyko and Komodakis, 2016; arXiv:1605.07146)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from friendly_sam.lab.models.initialisation import he_initialise


class PreActivationBlock(nn.Module):
    """F(x) + x with BatchNorm and ReLU before each of two 3x3 convolutions.

    Where shapes differ the shortcut is a 1x1 convolution of the activated input.
    """

    def __init__(self, in_channels: int, channels: int, *, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: smaller by the stride."""
        active = F.relu(self.norm1(x), inplace=True)
        residual = x if self.shortcut is None else self.shortcut(active)
        out = self.conv2(F.relu(self.norm2(self.conv1(active)), inplace=True))
        total: Tensor = out + residual
        return total


class WideResNet(nn.Module):
    """WRN-depth-widen without dropout: three stages of widths 16, 32, 64 times `widen`.

    Args:
        depth: 6n + 4 with n blocks a stage: 28 has 12 blocks in all.
        widen: Widening factor k.
        classes: Number of classes (WRN-28-10 has 36,479,194 parameters with 10).
        in_channels: Channels of the images.
    """

    def __init__(self, *, depth: int, widen: int, classes: int, in_channels: int = 3) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth must be 6n + 4 with n >= 1, got {depth}")
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        channels = 16
        for stage, width in enumerate((16 * widen, 32 * widen, 64 * widen)):
            for block in range((depth - 4) // 6):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(PreActivationBlock(channels, width, stride=stride))
                channels = width
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
