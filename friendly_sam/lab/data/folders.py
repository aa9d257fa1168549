"""Folders of image files, one folder for each class."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from friendly_sam.lab.data.dataset import Encoded
from friendly_sam.lab.errors import printable

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


class ImageFiles(Sequence[Encoded]):
    """Image files by number; each is opened when it is asked for."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Encoded: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Encoded]: ...
    def __getitem__(self, index: int | slice) -> Encoded | Sequence[Encoded]:
        if isinstance(index, slice):
            return ImageFiles(self._paths[index])
        return {"bytes": None, "path": self._paths[index]}


def class_folders(split: Path) -> list[str]:
    """Return the names of the classes of a split, in order."""
    with os.scandir(split) as entries:
        return sorted(entry.name for entry in entries if os.path.isdir(entry))


def image_files(split: Path, classes: Sequence[str], where: str) -> tuple[ImageFiles, list[int]]:
    """List the images of a split and their labels, in the order of their names."""
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if (split / name).is_dir():
            found = sorted(_images(split / name, where))
            paths += found
            labels += [label] * len(found)
    return ImageFiles(paths), labels


def _images(folder: Path, where: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _images(Path(entry.path), where)
        elif Path(entry.name).suffix.lower() in SUFFIXES:
            if not os.path.isfile(entry):  # false for a link to itself, where entry.is_file raises
                name = printable(os.path.relpath(entry.path, where))
                raise ValueError(f"{name!r} in {where!r} is not a regular file")
            yield entry.path
