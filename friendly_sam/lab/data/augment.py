"""Random flips, crops and cutout for a whole batch at a time, each image with its own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Draws(NamedTuple):
    """The random numbers of a batch, one entry an image, on the CPU whatever the images are on."""

    flip: Tensor
    """bool: mirror it."""
    down: Tensor
    """int64: where the crop starts in the padded image, 0 to 2 * padding."""
    right: Tensor
    cut: Tensor
    """bool: blank out a square."""
    top: Tensor
    """int64: where the square starts; it may stick out of the image."""
    left: Tensor

    def part(self, begin: int, end: int) -> Draws:
        """Take the numbers of the images from `begin` to `end`."""
        return Draws(*(numbers[begin:end] for numbers in self))


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What is done to training images, in torchvision's order.

    Padding with black, random crop and flip act on the raw pixels; cutout comes after
    normalisation and sets to 0, as in the code of SAM's and F-SAM's authors. Images that are
    decoded as they are needed get a random resized crop in place of the padded one.
    """

    flip: bool = False
    """Mirror an image left to right with probability 1/2."""
    crop_padding: int = 0
    """Pad by this many black pixels, then crop to the old size at random (CIFAR: 4; 0: off)."""
    cutout: int = 0
    """Side in pixels of a square that is blanked out, cut off at the edges (16; 0: off)."""
    cutout_probability: float = 0.5
    """How often an image loses a square."""
    smallest_crop: float = 0.08
    """Large images: least share of the area that a random resized crop keeps (1: off)."""

    def __post_init__(self) -> None:
        for name in ("crop_padding", "cutout"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not 0.0 <= self.cutout_probability <= 1.0:
            raise ValueError(
                f"cutout_probability must lie in [0, 1], got {self.cutout_probability}"
            )
        if not 0.0 < self.smallest_crop <= 1.0:
            raise ValueError(f"smallest_crop must lie in (0, 1], got {self.smallest_crop}")

    @property
    def acts_on_batches(self) -> bool:
        """Whether images in memory are changed at all."""
        return bool(self.flip or self.crop_padding or self.cutout)

    def draw(self, count: int, size: int, generator: torch.Generator) -> Draws:
        """Draw the numbers for `count` images of side `size`.

        All six numbers of an image are always drawn, so that to switch one augmentation on or off
        leaves the others as they were.
        """
        uniform = torch.rand((6, count), generator=generator, dtype=torch.float64)
        places = 2 * self.crop_padding + 1
        limits = torch.tensor([places, places, size, size], dtype=torch.float64)
        # In float64 a number below 1 times a whole limit rounds to less than the limit.
        down, right, top, left = (uniform[:4] * limits.unsqueeze(1)).long()
        return Draws(
            flip=uniform[4] < (0.5 if self.flip else 0.0),
            down=down,
            right=right,
            cut=uniform[5] < (self.cutout_probability if self.cutout else 0.0),
            top=top - self.cutout // 2,
            left=left - self.cutout // 2,
        )

    def move(self, images: Tensor, draws: Draws) -> Tensor:
        """Crop from the padded images and flip, in one gather.

        Args:
            images: uint8 [B, C, H, W], on any device.
            draws: Numbers of these B images.
        """
        padding = self.crop_padding
        if not (padding or self.flip):
            return images
        batch, channels, height, width = images.shape
        device = images.device
        x = torch.arange(width, device=device)
        y = torch.arange(height, device=device)
        flip = draws.flip.to(device, non_blocking=True).unsqueeze(1)
        columns = torch.where(flip, width - 1 - x, x)
        if padding:
            images = F.pad(images, (padding, padding, padding, padding))
            columns = columns + draws.right.to(device, non_blocking=True).unsqueeze(1)
            y = y + draws.down.to(device, non_blocking=True).unsqueeze(1)
        rows = (y * images.shape[-1]).expand(batch, height)
        # One index for all channels: expanded, it costs a third of an index for each.
        index = (rows.unsqueeze(2) + columns.unsqueeze(1)).reshape(batch, 1, height * width)
        moved = images.reshape(batch, channels, -1).gather(2, index.expand(-1, channels, -1))
        return moved.view(batch, channels, height, width)

    def blank(self, images: Tensor, draws: Draws) -> Tensor:
        """Set the squares of cutout to 0, in place.

        Args:
            images: Normalised, [B, C, H, W], on any device.
            draws: Numbers of these B images.
        """
        if not self.cutout or not self.cutout_probability:
            return images
        height, width = images.shape[-2:]
        y, x = torch.arange(height), torch.arange(width)
        top, left = draws.top.unsqueeze(1), draws.left.unsqueeze(1)
        rows = (y < top) | (y >= top + self.cutout) | ~draws.cut.unsqueeze(1)
        columns = (x < left) | (x >= left + self.cutout)
        # 1 where the row or the column is outside the square; multiplying beats masked filling.
        rows, columns = (
            kept.to(images.device, images.dtype, non_blocking=True) for kept in (rows, columns)
        )
        keep = torch.maximum(rows.unsqueeze(2), columns.unsqueeze(1))
        return images.mul_(keep.unsqueeze(1))
