"""Some rows of a stored split: choosing them costs nothing, decoding comes last."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from friendly_sam.lab.data.dataset import EncodedImages, Images, Split
from friendly_sam.lab.data.decoded import DECODED
from friendly_sam.lab.data.pixels import fit_square, from_tensor, stored_bytes, to_tensor
from friendly_sam.lab.data.source import Source

SAMPLES = 4096
"""Images of a split that its digest depends on."""


@dataclass(frozen=True)
class Shape:
    """What every image is brought to."""

    channels: int
    size: int
    in_memory: bool


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows of one stored split, in the order of the store."""

    name: str
    """The split, for errors."""
    source: Source
    positions: Tensor
    """Row numbers in `source`, int64 [N]."""
    labels: Tensor
    """int64 [N]."""

    @classmethod
    def whole(cls, name: str, source: Source) -> Selection:
        """Take all rows of a split."""
        return cls(name, source, torch.arange(len(source.labels)), source.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: Tensor) -> Selection:
        """Keep these of the rows; sorted, since neighbours are read faster."""
        chosen = chosen.sort().values
        return replace(self, positions=self.positions[chosen], labels=self.labels[chosen])

    def only(self, classes: Sequence[int]) -> Selection:
        """Keep these classes, relabelled by their place in `classes`."""
        wanted = torch.tensor(classes)
        kept = self.take(torch.isin(self.labels, wanted).nonzero().squeeze(1))
        return replace(kept, labels=(kept.labels.unsqueeze(1) == wanted).int().argmax(dim=1))

    def images(self, shape: Shape) -> Images:
        """Decode all images, or hand them on encoded where they do not go into memory."""
        rows = self.source.rows
        if isinstance(rows, Tensor):
            pixels = rows[self.positions]
            if pixels.shape[-2:] == (shape.size, shape.size):
                return pixels
            images = torch.empty(self.dimensions(shape), dtype=torch.uint8)
            for index, image in enumerate(pixels):
                images[index] = to_tensor(fit_square(from_tensor(image), shape.size))
            return images
        encoded = EncodedImages(
            rows, self.positions, channels=shape.channels, split=self.name, root=self.source.root
        )
        if not shape.in_memory:
            return encoded
        images = torch.empty(self.dimensions(shape), dtype=torch.uint8)
        for index in range(len(encoded)):
            content = encoded.content(index)
            if content is None:
                images[index] = _fitted(encoded, index, shape.size)
            else:
                images[index] = DECODED.get(
                    content, shape.channels, shape.size,
                    partial(_fitted, encoded, index, shape.size),
                )  # fmt: skip
        return images

    def dimensions(self, shape: Shape) -> tuple[int, int, int, int]:
        """Return the shape of all images together."""
        return len(self), shape.channels, shape.size, shape.size

    def digest(self) -> str:
        """Return a digest of all labels, and of the images as they are stored.

        Beyond `SAMPLES`, that many images are digested, evenly spread from the first to the last.
        """
        found = hashlib.blake2b(self.labels.numpy().tobytes(), digest_size=16)
        count = min(len(self), SAMPLES)
        places = torch.linspace(0, len(self) - 1, count, dtype=torch.float64).round().long()
        rows = self.source.rows
        for position in self.positions[places].tolist():
            if isinstance(rows, Tensor):
                found.update(rows[position].numpy().tobytes())
            else:
                row = rows[position]
                what = f"image {position} of the {self.name} split"
                found.update(stored_bytes(row, what=what, root=self.source.root))
        return found.hexdigest()

    def split(self, shape: Shape, *, labels: Tensor | None = None) -> Split:
        """Make the split that is trained or tested on; `labels` are those that training sees."""
        return Split(
            images=self.images(shape),
            labels=self.labels if labels is None else labels,
            clean_labels=self.labels,
        )


def _fitted(encoded: EncodedImages, index: int, size: int) -> Tensor:
    picture = encoded[index]
    try:
        return to_tensor(fit_square(picture, size))
    except ValueError as error:
        raise ValueError(f"{encoded.name(index)}: resized, {error}") from error
