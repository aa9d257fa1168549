"""VGG with BatchNorm for small images (Simonyan and Zisserman, 2015; arXiv:1409.1556)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from friendly_sam.lab.models.initialisation import he_initialise

VGG16_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
VGG8_STAGES = ((32,), (64,), (128,), (256,), (256,))

SMALLEST_IMAGE = 16


class VGG(nn.Module):
    """Stages of 3x3 convolutions, each closed by a 2x2 max-pool, then three linear layers.

    Args:
        stages: Output channels of the convolutions, a tuple a stage.
        classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Side of the images, 16 at least. At 16 the last pool has nothing left to halve
            and passes its input on.
        hidden: Width of the two hidden linear layers (512 in the paper's VGG16-BN).
    """

    def __init__(
        self,
        stages: Sequence[Sequence[int]],
        *,
        classes: int,
        in_channels: int = 3,
        image_size: int = 32,
        hidden: int = 512,
    ) -> None:
        super().__init__()
        if image_size < SMALLEST_IMAGE:
            raise ValueError(
                f"VGG halves its input five times: image_size must be at least {SMALLEST_IMAGE}, "
                f"got {image_size}"
            )
        layers: list[nn.Module] = []
        channels = in_channels
        for stage in stages:
            for width in stage:
                layers += [
                    nn.Conv2d(channels, width, 3, padding=1),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
                channels = width
            # ceil_mode changes nothing while sides are even, and lets a 1x1 map through.
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(channels, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        logits: Tensor = self.classifier(self.pool(self.features(images)))
        return logits
