"""Two networks for 8x8 digits that train in seconds on a CPU."""

from __future__ import annotations

from torch import Tensor, nn

from friendly_sam.lab.models.initialisation import he_initialise


class MLP(nn.Module):
    """Flatten, two hidden layers with ReLU, a linear head; no BatchNorm.

    Args:
        classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Side of the images; the first layer is tied to it.
        hidden: Width of both hidden layers.
    """

    def __init__(
        self, *, classes: int, in_channels: int = 1, image_size: int = 8, hidden: int = 256
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(in_channels * image_size**2, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        logits: Tensor = self.layers(images)
        return logits


class CNN(nn.Module):
    """Two 3x3 convolutions with BatchNorm, a 2x2 pool after each, and a linear head.

    Args:
        classes: Number of classes.
        in_channels: Channels of the images.
        width: Channels of the first convolution; the second has twice as many.
    """

    def __init__(self, *, classes: int, in_channels: int = 1, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
            # 2x2 and not global: where a stroke lies is most of what tells digits apart.
            nn.AdaptiveMaxPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * width, classes),
        )
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        logits: Tensor = self.layers(images)
        return logits
