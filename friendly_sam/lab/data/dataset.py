"""What `load` gives: images and labels of each split, in memory or decoded when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor

from friendly_sam.lab.data.pixels import open_picture, with_channels

if TYPE_CHECKING:
    from PIL.Image import Image

Encoded: TypeAlias = Mapping[str, bytes | str | None]
"""One encoded image: its `bytes`, or the `path` of its file."""


class EncodedImages:
    """Images that stay encoded, in a memory-mapped table or in files, until they are asked for.

    Args:
        rows: The table's image column: row number to encoded image.
        positions: Rows that belong to this split, in order.
        channels: 1 (grey) or 3 (RGB), which every image is converted to.
        split: Name of the split, for errors.
        root: Folder of images that are given by path.
    """

    def __init__(
        self,
        rows: Sequence[Encoded],
        positions: Tensor,
        *,
        channels: int,
        split: str,
        root: Path | None = None,
    ) -> None:
        self._rows = rows
        self._positions = positions
        self.channels = channels
        self._split = split
        self._root = root

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: int) -> Image:
        row = self._rows[int(self._positions[index])]
        picture = open_picture(row, what=self.name(index), root=self._root)
        return with_channels(picture, self.channels)

    def content(self, index: int) -> bytes | None:
        """Return an image as it is stored; `None`: in a file of its own, or not at all."""
        data = self._rows[int(self._positions[index])].get("bytes")
        return data if isinstance(data, bytes) else None

    def name(self, index: int) -> str:
        """Return what an error calls an image."""
        return f"image {int(self._positions[index])} of the {self._split} split"


Images: TypeAlias = Tensor | EncodedImages
"""uint8 [N, C, H, W] in memory, or large images that are decoded when they are asked for."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Images with the labels that are trained on, and with the labels as they came."""

    images: Images
    """In memory (uint8 [N, C, H, W]) or encoded."""
    labels: Tensor
    """int64 [N]; noisy, if noise was asked for."""
    clean_labels: Tensor
    """int64 [N]; as they came."""

    def __post_init__(self) -> None:
        if not len(self.images) == len(self.labels) == len(self.clean_labels):
            raise ValueError(
                f"a split needs as many labels as images, images: {len(self.images)}, "
                f"labels: {len(self.labels)}, clean labels: {len(self.clean_labels)}"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class ImageData:
    """A data set, ready to be trained on."""

    name: str
    """The name that it was loaded by."""
    classes: tuple[str, ...]
    """Names of the classes; a label is a position in here."""
    train: Split
    """Training images."""
    validation: Split | None
    """Held out from training, or the data's own validation split, or None."""
    test: Split
    """Test images."""
    mean: tuple[float, ...]
    """What is subtracted from each channel, on a scale from 0 to 1."""
    std: tuple[float, ...]
    """What each channel is divided by afterwards."""
    channels: int
    """1 or 3."""
    image_size: int
    """Side of the images that a model gets."""
    digest: str = ""
    """Of the images and labels of all splits, as they are stored: a run is of one data set."""
