"""Large images: decoded, cropped and resized when they are needed, by worker processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from friendly_sam.lab.data.augment import Augmentation
from friendly_sam.lab.data.dataset import EncodedImages
from friendly_sam.lab.data.pixels import fit_square, to_tensor
from friendly_sam.lab.data.randomness import generator_for

if TYPE_CHECKING:
    from PIL.Image import Image

TEST_SCALE = 256 / 224
"""Short side of a test image before its centre is cropped, as a multiple of the crop."""
ASPECT_RATIOS = (3 / 4, 4 / 3)
ATTEMPTS = 10


class Key(NamedTuple):
    """Which image, and for which epoch."""

    epoch: int
    position: int


class Decoded(Dataset[Tensor | str]):
    """uint8 images [C, S, S] by key; a pure function of (seed, epoch, position).

    An image that cannot be decoded gives the message of its error, since an exception that crosses
    from a worker process arrives as a page of traceback.

    Args:
        images: The encoded images.
        size: Side S of what comes out.
        augment: Random resized crop and flip; None: the centre.
        seed: Seed of the random numbers.
    """

    def __init__(
        self, images: EncodedImages, *, size: int, augment: Augmentation | None, seed: int
    ) -> None:
        self._images = images
        self._size = size
        self._augment = augment
        self._seed = seed

    def __getitem__(self, key: Key) -> Tensor | str:
        try:
            picture = self._images[key.position]
        except (ValueError, OSError) as error:
            return str(error)
        if self._augment is None:
            resized = round(self._size * TEST_SCALE)
            try:
                return to_tensor(fit_square(picture, self._size, resized=resized))
            except ValueError as error:
                return f"{self._images.name(key.position)}: resized, {error}"
        generator = generator_for("picture", self._seed, key.epoch, key.position)
        pixels = to_tensor(
            random_resized_crop(
                picture, self._size, smallest=self._augment.smallest_crop, generator=generator
            )
        )
        flip = self._augment.flip and torch.rand((), generator=generator).item() < 0.5
        return pixels.flip(-1) if flip else pixels

    def batches(
        self, batches: Iterable[list[Key]], *, workers: int, pin_memory: bool
    ) -> Iterator[Tensor]:
        """Decode batch after batch, ahead of need where there are workers.

        Raises:
            ValueError: An image is damaged.
        """
        loader: DataLoader[Tensor | str] = DataLoader(
            self,
            batch_sampler=batches,
            num_workers=workers,
            collate_fn=self._stack,
            pin_memory=pin_memory,
            generator=torch.Generator(),  # else the loader draws from torch's global one
        )
        for batch in loader:
            if isinstance(batch, str):
                raise ValueError(batch)
            yield batch

    def _stack(self, images: Sequence[Tensor | str]) -> Tensor | str:
        pixels: list[Tensor] = []
        for image in images:
            if isinstance(image, str):
                return image
            pixels.append(image)
        if not pixels:
            shape = (0, self._images.channels, self._size, self._size)
            return torch.empty(shape, dtype=torch.uint8)
        return torch.stack(pixels)


def random_resized_crop(
    picture: Image, size: int, *, smallest: float, generator: torch.Generator
) -> Image:
    """Crop a random share of the area at a random aspect ratio, and resize it to a square.

    The usual crop of ImageNet training (Szegedy et al., 2015): area uniform in [smallest, 1], log
    of the ratio uniform in [log 3/4, log 4/3]; after ten crops that do not fit, the largest
    central one with an allowed ratio.
    """
    from PIL import Image

    width, height = picture.size
    low, high = (math.log(ratio) for ratio in ASPECT_RATIOS)
    numbers = torch.rand((ATTEMPTS, 4), generator=generator, dtype=torch.float64).tolist()
    for area_number, ratio_number, x_number, y_number in numbers:
        area = width * height * (smallest + (1 - smallest) * area_number)
        ratio = math.exp(low + (high - low) * ratio_number)
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left = int(x_number * (width - crop_width + 1))
            top = int(y_number * (height - crop_height + 1))
            break
    else:
        crop_width = min(width, round(height * ASPECT_RATIOS[1]))
        crop_height = min(height, round(width / ASPECT_RATIOS[0]))
        left, top = (width - crop_width) // 2, (height - crop_height) // 2
    box = (left, top, left + crop_width, top + crop_height)
    return picture.resize((size, size), Image.Resampling.BILINEAR, box=box)
