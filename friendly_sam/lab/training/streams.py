"""From a config to images, and to the streams of batches that a run uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.counting import counted
from friendly_sam.lab.data import Augmentation, Batches, ImageData, Split, load
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.models import MODELS
from friendly_sam.lab.training.distributed import World
from friendly_sam.lab.training.feature_cache import FeatureBatches, Features

OTHER_STREAM = 0x5DB
"""Added to the seed for SAM-db's second stream of batches."""


def load_data(config: RunConfig) -> ImageData:
    """Load the images; subset and label noise follow the run's seed.

    A pretrained network has its pixels normalised as in its pretraining. Where blocks are frozen,
    images are seen whole unless `data.in_memory` is false, with `model.cache` and without.
    """
    data = config.data
    if config.model.cache is not None and data.in_memory is False:
        raise LabError(
            "data.in_memory must not be false with model.cache, which decodes all images"
        )
    whole = data.in_memory is None and config.model.trained_blocks is not None
    images = load(
        data.name,
        root=None if data.root is None else Path(data.root),
        train_size=data.train_size,
        validation_size=data.validation_size,
        test_size=data.test_size,
        image_size=data.image_size,
        classes=data.classes,
        label_noise=data.label_noise,
        noise_from=data.noise_from,
        seed=config.seed,
        in_memory=True if whole else data.in_memory,
    )
    info = MODELS.get(config.model.name)
    if info is None or info.pixels is None:
        return images
    mean, std = ((value,) * images.channels for value in info.pixels)
    return replace(images, mean=mean, std=std)


class Streams:
    """The batches of a run.

    `train` is shuffled and augmented; `other` is SAM-db's second, independent stream of the
    same kind; `whole` is the training set in order, not augmented; `held_out` has the test images,
    unless a trial of a search must not see them, and the validation images, where some were set
    aside. With cached features, these
    take the place of the images.
    """

    def __init__(
        self, config: RunConfig, data: ImageData, here: World, features: Features | None = None
    ) -> None:
        self.config, self.data, self.here, self.features = config, data, here, features
        size = config.data.batch_size
        if size > len(data.train):
            raise LabError(
                "data.batch_size must be at most the "
                f"{counted(len(data.train), 'training image')}, got {size}"
            )
        if size % here.size:
            raise LabError(
                f"data.batch_size must be a multiple of the "
                f"{counted(here.size, 'process')}, got {size}"
            )
        self.train = self._training(config.seed)
        ascent_batches = config.method.ascent_batches
        if ascent_batches > len(self.train):
            raise LabError(
                f"method.ascent_batches must be at most the "
                f"{counted(len(self.train), 'batch')} of an epoch, "
                f"got {ascent_batches}"
            )
        second = METHODS[config.method.name].ascent == "other batch"
        self.other = self._training(config.seed + OTHER_STREAM) if second else None
        self.whole = self._plain("train", data.train)
        self.held_out = {}
        if config.engine.eval_test:
            self.held_out["test"] = self._plain("test", data.test)
        if data.validation is not None:
            self.held_out["validation"] = self._plain("validation", data.validation)

    def count(self, number: int) -> float:
        """Return the images of training batch `number`, divided by the number of processes."""
        size = self.config.data.batch_size
        return min(size, len(self.data.train) - number * size) / self.here.size

    def _training(self, seed: int) -> Batches:
        settings, here = self.config.data, self.here
        return self._batches(
            "train",
            self.data.train,
            batch_size=settings.batch_size,
            train=True,
            augment=_augmentation(self.config),
            seed=seed,
            drop_last=settings.drop_last,
            device=here.device,
            workers=settings.workers,
            rank=here.rank,
            world=here.size,
        )

    def _plain(self, name: str, split: Split) -> Batches:
        settings, engine, here = self.config.data, self.config.engine, self.here
        return self._batches(
            name,
            split,
            batch_size=engine.eval_batch_size or max(256, settings.batch_size),
            train=False,
            device=here.device,
            workers=settings.workers,
            rank=here.rank,
            world=here.size,
        )

    def _batches(self, name: str, split: Split, **options: Any) -> Batches:
        options["channels_last"] = self.config.engine.channels_last
        if self.features is None:
            return Batches(split, self.data, **options)
        return FeatureBatches(self.features[name], split, self.data, **options)


def _augmentation(config: RunConfig) -> Augmentation:
    data = config.data
    return Augmentation(
        flip=data.flip,
        crop_padding=data.crop_padding,
        cutout=data.cutout,
        cutout_probability=data.cutout_probability,
        smallest_crop=data.smallest_crop,
    )
