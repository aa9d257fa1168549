"""The loader: batches as a pure function of seed, epoch and batch number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from friendly_sam.lab.counting import counted
from friendly_sam.lab.data.augment import Augmentation, Draws
from friendly_sam.lab.data.dataset import ImageData, Split
from friendly_sam.lab.data.decoding import Decoded, Key
from friendly_sam.lab.data.randomness import generator_for


class Batch(NamedTuple):
    """Images as a model takes them."""

    images: Tensor
    """float32 [B, C, H, W], normalised."""
    labels: Tensor
    """int64 [B], those that training sees."""
    indices: Tensor
    """int64 [B], positions in the split."""


class Batches:
    """Batches of one split, epoch by epoch.

    The order of an epoch depends on (seed, epoch), the augmentation of its batch i on
    (seed, epoch, i), and nothing else: a run that goes on in the middle of an epoch gets the
    batches that it would have got, and torch's global generator is never touched. Images in memory
    are kept on `device` and augmented there; encoded ones are decoded by worker processes.

    With `world` processes, each batch of `batch_size` is shared out, so that the parts of all ranks
    make up the batch of one process, its random numbers included.

    Args:
        split: What to go through.
        data: The data set that it belongs to, for normalisation and size.
        batch_size: Images of a batch, over all ranks together.
        train: Shuffle and augment.
        augment: What is done to training images; without `train` nothing is.
        seed: Seed of order and augmentation.
        drop_last: Leave out the last batch where it is smaller.
        device: Where batches end up.
        workers: Processes that decode; for encoded images only.
        rank: Which share of each batch this process takes.
        world: Number of processes. When not training, a rank may get an empty share of the last
            batch, so that all ranks see the same number of batches.
        channels_last: Lay the images out channels last.
    """

    def __init__(
        self,
        split: Split,
        data: ImageData,
        *,
        batch_size: int,
        train: bool,
        augment: Augmentation | None = None,
        seed: int = 0,
        drop_last: bool = False,
        device: torch.device | str = "cpu",
        workers: int = 0,
        rank: int = 0,
        world: int = 1,
        channels_last: bool = False,
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("workers", workers, 0),
            ("world", world, 1),
            ("rank", rank, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if rank >= world:
            raise ValueError(f"rank must be below world = {world}, got {rank}")
        if not len(split):
            raise ValueError(f"the split of {data.name!r} is empty")
        if drop_last and batch_size > len(split):
            raise ValueError(
                f"batch_size must be at most {len(split)}, the size of the split, "
                f"with drop_last, got {batch_size}"
            )
        self._count = len(split)
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._train = train
        self._augment = augment if train else None
        self._seed = seed
        self._rank, self._world = rank, world
        if train:
            self._check_shares()

        self._device = torch.device(device)
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._labels = split.labels.to(self._device)
        self._size = data.image_size
        self._pixels: Tensor | None = None
        if isinstance(split.images, Tensor):
            self._pixels = split.images.to(self._device)
        else:
            self._decoded = Decoded(
                split.images, size=data.image_size, augment=self._augment, seed=seed
            )
        self._workers = workers
        shape = (1, -1, 1, 1)
        self._mean = torch.tensor(data.mean, device=self._device).view(shape) * 255
        self._scale = 1 / (torch.tensor(data.std, device=self._device).view(shape) * 255)

    def __len__(self) -> int:
        """Batches an epoch, the same on every rank."""
        whole, rest = divmod(self._count, self._batch_size)
        return whole + (1 if rest and not self._drop_last else 0)

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Go through an epoch.

        Args:
            epoch: Number of the epoch; each has an order of its own.
            start: First batch, to go on in the middle of an epoch: what comes is what would have
                come without the stop.
        """
        if not 0 <= start <= len(self):
            raise ValueError(f"start must lie in 0..{len(self)}, got {start}")
        return self._batches(epoch, range(start, len(self)))

    def _batches(self, epoch: int, numbers: range) -> Iterator[Batch]:
        order = torch.arange(self._count)
        if self._train:
            order = torch.randperm(self._count, generator=generator_for("order", self._seed, epoch))
        chosen = [order[slice(*self._share(number))] for number in numbers]
        for number, indices, raw in zip(numbers, chosen, self._raw(epoch, chosen), strict=True):
            on_device = indices.to(self._device, non_blocking=True)
            yield Batch(self._finish(raw, epoch, number), self._labels[on_device], on_device)

    def _raw(self, epoch: int, chosen: Sequence[Tensor]) -> Iterator[Tensor]:
        """Fetch the uint8 images of each batch."""
        if self._pixels is not None:
            for indices in chosen:
                yield self._pixels.index_select(0, indices.to(self._device, non_blocking=True))
            return
        keys = ([Key(epoch, index) for index in indices.tolist()] for indices in chosen)
        pin_memory = self._device.type == "cuda"
        for images in self._decoded.batches(keys, workers=self._workers, pin_memory=pin_memory):
            yield images.to(self._device, non_blocking=True)

    def _finish(self, images: Tensor, epoch: int, number: int) -> Tensor:
        """Crop and flip what is in memory, normalise, cut out."""
        draws = self._draws(epoch, number)
        if self._augment is None or draws is None:
            return self._normalised(images)
        if self._pixels is not None:
            images = self._augment.move(images, draws)
        return self._augment.blank(self._normalised(images), draws)

    def _draws(self, epoch: int, number: int) -> Draws | None:
        """Draw the numbers of a batch's augmentation, if there is any.

        They are drawn for the whole batch, and each rank takes its own.
        """
        if self._augment is None or not self._augment.acts_on_batches:
            return None
        first = number * self._batch_size
        count = min(self._batch_size, self._count - first)
        generator = generator_for("augmentation", self._seed, epoch, number)
        begin, end = self._share(number)
        return self._augment.draw(count, self._size, generator).part(begin - first, end - first)

    def _normalised(self, images: Tensor) -> Tensor:
        floats = images.to(torch.float32, memory_format=self._layout)
        return floats.sub_(self._mean).mul_(self._scale)

    def _share(self, number: int) -> tuple[int, int]:
        """Where this rank's part of a batch begins and ends in the order of the epoch."""
        first = number * self._batch_size
        count = min(self._batch_size, self._count - first)
        return (
            first + count * self._rank // self._world,
            first + count * (self._rank + 1) // self._world,
        )

    def _check_shares(self) -> None:
        """Refuse shares of different weight, or none at all: DDP averages ranks as equals."""
        if self._batch_size % self._world:
            raise ValueError(
                f"batch_size must be a multiple of world = {self._world}, got {self._batch_size}"
            )
        rest = self._count % self._batch_size
        if rest and rest < self._world and not self._drop_last:
            raise ValueError(
                f"the last batch would have {counted(rest, 'image')} for "
                f"{counted(self._world, 'process')}: "
                "set drop_last, or choose another batch_size"
            )
