"""Some rows of a stored split: choosing them costs nothing, decoding comes last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from friendly_sam.lab.data.dataset import EncodedImages, Images, Split
from friendly_sam.lab.data.pixels import fit_square, from_tensor, to_tensor
from friendly_sam.lab.data.source import Source


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
            fitted = [to_tensor(fit_square(from_tensor(image), shape.size)) for image in pixels]
            return torch.stack(fitted)
        encoded = EncodedImages(rows, self.positions, channels=shape.channels, split=self.name)
        if not shape.in_memory:
            return encoded
        decoded = torch.empty(
            (len(encoded), shape.channels, shape.size, shape.size), dtype=torch.uint8
        )
        for index in range(len(encoded)):
            decoded[index] = to_tensor(fit_square(encoded[index], shape.size))
        return decoded

    def split(self, shape: Shape, *, labels: Tensor | None = None) -> Split:
        """Make the split that is trained or tested on; `labels` are those that training sees."""
        return Split(
            images=self.images(shape),
            labels=self.labels if labels is None else labels,
            clean_labels=self.labels,
        )
