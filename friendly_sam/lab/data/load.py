"""`load`: from a name or a folder to images and labels that can be trained on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from friendly_sam.lab.counting import counted
from friendly_sam.lab.data.catalogue import (
    DATASETS,
    IMAGENET_MEAN,
    IMAGENET_STD,
    DatasetInfo,
)
from friendly_sam.lab.data.dataset import ImageData
from friendly_sam.lab.data.digits import load_digits
from friendly_sam.lab.data.noise import NoiseFrom, symmetric_noise
from friendly_sam.lab.data.pixels import channels_of, open_picture
from friendly_sam.lab.data.randomness import generator_for
from friendly_sam.lab.data.selection import Selection, Shape
from friendly_sam.lab.data.source import WHOLE, open_folder, open_hub
from friendly_sam.lab.errors import did_you_mean
from friendly_sam.lab.memory import require

LARGEST_IN_MEMORY = 64
LARGE_IMAGE_SIZE = 224
MOST_CLASSES = 10_000
"""Of data with fewer images than that."""
TEST_SHARE = 5
"""One image of so many is for the test, in a folder without splits."""


def load(
    name: str,
    *,
    root: Path | None = None,
    train_size: int | None = None,
    validation_size: int = 0,
    test_size: int | None = None,
    image_size: int | None = None,
    classes: tuple[int, ...] | None = None,
    label_noise: float = 0.0,
    noise_from: NoiseFrom = "all",
    seed: int = 0,
    in_memory: bool | None = None,
) -> ImageData:
    """Load a data set.

    Args:
        name: A name of `DATASETS`, a hub name with its owner (`owner/name`), or any name at all
            where `root` is given.
        root: A local folder to read instead of the hub: parquet files called train*, test*,
            validation*, or folders train, test, val of a folder of images for each class, or just
            a folder of images for each class, of which a fifth is held out for the test.
        train_size: Number of training images; None: all that validation leaves.
        validation_size: Number of training images held out for validation. With 0, `validation` is
            the data's own validation split where it has one besides the test split, else None.
        test_size: Number of test images; None: all.
        image_size: Side that images are brought to: the short side is resized, the centre cropped.
            None: as they are, or 224 where they are large.
        classes: Keep these classes only; they become 0, 1, ... in this order.
        label_noise: Share of the training labels that is replaced; `Split.clean_labels` keeps them.
        noise_from: Draw replaced labels from "all" classes or from the "others".
        seed: Chooses subsets, held-out images and noise. Of one seed, larger training and test sets
            contain smaller ones.
        in_memory: Decode all images now; None: where they are at most 64 pixels wide.

    Raises:
        ValueError: A bad argument, damaged data, or labels out of range; one line.
        FileNotFoundError: `root` is not there, or has no train split.
        OSError: The hub cannot be reached.
    """
    _check_sizes(train_size, validation_size, test_size, image_size)
    info = DATASETS.get(name)
    train, validation, test = _roles(name, _divided(open_data(name, root)), info)
    used = [part for part in (train, validation, test) if part is not None]
    names = _class_names(train, used, info)
    if info is not None and len(names) > info.classes:
        raise ValueError(
            f"data.name {name} has {counted(info.classes, 'class')}, and the data in {root} "
            f"{len(names)}: is it another data set? Give it a name of its own"
        )
    for part in used:
        if not len(part):
            raise ValueError(f"the {part.name} split of {name!r} is empty")
        _check_labels(part, len(names))
    if classes is not None:
        _check_classes(classes, len(names))
        names = tuple(names[label] for label in classes)
        train, test = train.only(classes), test.only(classes)
        validation = None if validation is None else validation.only(classes)

    order = torch.randperm(len(train), generator=generator_for("train subset", seed))
    if validation_size:
        # From the end: a larger training set leaves the same images held out.
        _check_room("validation_size", validation_size, len(order) - 1, "train split")
        validation = train.take(order[-validation_size:])
        order = order[:-validation_size]
    if train_size is not None:
        where = "train split without validation" if validation_size else "train split"
        _check_room("train_size", train_size, len(order), where)
        order = order[:train_size]
    train = train.take(order)
    if test_size is not None:
        _check_room("test_size", test_size, len(test), "test split")
        chosen = torch.randperm(len(test), generator=generator_for("test subset", seed))
        test = test.take(chosen[:test_size])
    for part in (train, test):
        if not len(part):
            raise ValueError(f"the {part.name} split of {name!r} has no image of {classes=}")

    noisy = symmetric_noise(
        train.labels, rate=label_noise, classes=len(names), noise_from=noise_from, seed=seed
    )
    shape = _shape(train, info, image_size, in_memory)
    _check_memory([part for part in (train, validation, test) if part is not None], shape)
    mean, std = _statistics(info, shape.channels)
    return ImageData(
        name=name,
        classes=names,
        train=train.split(shape, labels=noisy),
        validation=None if validation is None else validation.split(shape),
        test=test.split(shape),
        mean=mean,
        std=std,
        channels=shape.channels,
        image_size=shape.size,
        digest=_digest(train, validation, test),
    )


def _check_memory(parts: Sequence[Selection], shape: Shape) -> None:
    """Refuse images that would take most of the memory, before any is decoded."""
    if shape.in_memory:
        need = sum(math.prod(part.dimensions(shape)) for part in parts)
        count = sum(len(part) for part in parts)
        require(
            need,
            f"{counted(count, 'image')} of {shape.size}x{shape.size} in memory",
            "choose a smaller data.image_size, fewer images, or data.in_memory false",
            share=0.5,
        )


def _digest(*parts: Selection | None) -> str:
    words = ["" if part is None else part.digest() for part in parts]
    return hashlib.blake2b(" ".join(words).encode(), digest_size=16).hexdigest()


def open_data(name: str, root: Path | None = None) -> dict[str, Selection]:
    """Open the stored splits of a data set without decoding an image; raise as `load` does."""
    info = DATASETS.get(name)
    if root is not None:
        sources = open_folder(Path(root).expanduser().absolute())
    elif info is not None:
        sources = load_digits() if info.hub is None else open_hub(info.hub)
    elif "/" in name:
        sources = open_hub(name)
    else:
        hint = did_you_mean(name, DATASETS)
        raise ValueError(
            f"unknown data set {name!r}{hint}; choose one of {', '.join(DATASETS)}, "
            "a hub name owner/name, or give root, a local folder"
        )
    return {split: Selection.whole(split, source) for split, source in sources.items()}


def _divided(parts: dict[str, Selection]) -> dict[str, Selection]:
    """Hold out a fifth of each class for the test, where a folder comes without splits.

    Which images those are does not depend on the run's seed.
    """
    if WHOLE not in parts:
        return parts
    whole = parts[WHOLE]
    order = torch.randperm(len(whole), generator=generator_for("held-out test images"))
    held_out = torch.zeros(len(whole), dtype=torch.bool)
    for label in set(whole.labels.tolist()):
        held_out[order[whole.labels[order] == label][::TEST_SHARE]] = True
    chosen = {"train": ~held_out, "test": held_out}
    return {
        split: replace(whole.take(rows.nonzero().squeeze(1)), name=split)
        for split, rows in chosen.items()
    }


def _roles(
    name: str, parts: dict[str, Selection], info: DatasetInfo | None
) -> tuple[Selection, Selection | None, Selection]:
    """Choose which stored split is trained on, validated on and tested on."""
    train, validation, test = (parts.get(split) for split in ("train", "validation", "test"))
    if info is not None and info.test_split == "validation" and validation is not None:
        validation, test = None, validation
    if test is None:
        validation, test = None, validation
    if train is None or test is None:
        missing = "train" if train is None else "test"
        raise ValueError(f"data set {name!r} has no {missing} split, only {', '.join(parts)}")
    return train, validation, test


def _class_names(
    train: Selection, parts: Sequence[Selection], info: DatasetInfo | None
) -> tuple[str, ...]:
    """Take the names that the data gives; else number the classes."""
    if train.source.class_names is not None:
        names = train.source.class_names
        _check_count(len(names), len(train), "the data names them")
        return names
    if info is not None:
        return tuple(str(label) for label in range(info.classes))
    found = max((int(part.labels.max()) + 1 for part in parts if len(part)), default=0)
    _check_count(found, len(train), f"the largest label is {found - 1}")
    return tuple(str(label) for label in range(found))


def _check_count(classes: int, images: int, because: str) -> None:
    """Refuse more classes than any data has: each takes a row of the network's last layer."""
    most = max(MOST_CLASSES, images)
    if classes > most:
        raise ValueError(
            f"{counted(classes, 'class')} for {counted(images, 'training image')} ({because}): "
            f"at most {most:,} are allowed, so labels must lie in 0..{most - 1}"
        )


def _shape(
    train: Selection, info: DatasetInfo | None, image_size: int | None, in_memory: bool | None
) -> Shape:
    """Decide size, channels and place by what was asked for and by the first training image."""
    rows = train.source.rows
    if isinstance(rows, Tensor):
        if in_memory is False:
            raise ValueError("in_memory must not be false here: these images come decoded")
        return Shape(rows.shape[1], image_size or rows.shape[-1], in_memory=True)
    row = int(train.positions[0])
    what = f"image {row} of the train split"
    first = open_picture(rows[row], what=what, root=train.source.root)
    channels = channels_of(first) if info is None else len(info.mean)
    small = (image_size or max(first.size)) <= LARGEST_IN_MEMORY
    placed = small if in_memory is None else in_memory
    own_size = min(first.size) if placed else LARGE_IMAGE_SIZE
    return Shape(channels, image_size or own_size, in_memory=placed)


def _statistics(
    info: DatasetInfo | None, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if info is not None:
        return info.mean, info.std
    return (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((0.5,), (0.25,))


def _check_sizes(
    train_size: int | None, validation_size: int, test_size: int | None, image_size: int | None
) -> None:
    if validation_size < 0:
        raise ValueError(f"validation_size must be at least 0, got {validation_size}")
    for argument, value in (
        ("train_size", train_size),
        ("test_size", test_size),
        ("image_size", image_size),
    ):
        if value is not None and value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")


def _check_room(argument: str, size: int, room: int, where: str) -> None:
    if size > room:
        raise ValueError(f"{argument} must be at most {room}, what the {where} has, got {size}")


def _check_labels(part: Selection, classes: int) -> None:
    wrong = ((part.labels < 0) | (part.labels >= classes)).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"labels of the {part.name} split must lie in 0..{classes - 1}, "
            f"got {int(part.labels[row])} (row {row}; {len(wrong)} such rows)"
        )


def _check_classes(classes: tuple[int, ...], count: int) -> None:
    if not classes or len(set(classes)) < len(classes):
        raise ValueError(f"classes must be distinct, at least one, got {classes}")
    wrong = [label for label in classes if not 0 <= label < count]
    if wrong:
        raise ValueError(f"classes must lie in 0..{count - 1}, got {wrong[0]}")
