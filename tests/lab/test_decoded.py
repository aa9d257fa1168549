"""Images that were decoded before are not decoded again, and only those."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from friendly_sam.lab.data import selection
from friendly_sam.lab.data.dataset import Encoded
from friendly_sam.lab.data.decoded import DecodedImages
from friendly_sam.lab.data.selection import Selection, Shape
from friendly_sam.lab.data.source import Source


def picture(grey: int) -> Encoded:
    file = io.BytesIO()
    Image.new("RGB", (80, 80), (grey,) * 3).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def pixels(rows: Sequence[Encoded], size: int = 72) -> list[int]:
    """The value of each image, all of one grey."""
    source = Source(rows=rows, labels=torch.zeros(len(rows), dtype=torch.int64), class_names=None)
    images = Selection.whole("train", source).images(Shape(3, size, in_memory=True))
    assert isinstance(images, Tensor)
    assert images.shape == (len(rows), 3, size, size)
    return [int(image.unique()) for image in images]


def test_an_image_is_decoded_once_for_each_content_and_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []
    fitted = selection._fitted
    monkeypatch.setattr(selection, "_fitted", lambda *a: (decoded.append(a[1]), fitted(*a))[1])
    monkeypatch.setattr(selection, "DECODED", DecodedImages())
    assert pixels([picture(1), picture(2)]) == [1, 2]
    assert pixels([picture(2), picture(1)]) == [2, 1]
    assert decoded == [0, 1]
    assert pixels([picture(1), picture(3)]) == [1, 3]  # another image in its place
    assert decoded == [0, 1, 1]
    assert pixels([picture(1)], size=70) == [1]
    assert decoded == [0, 1, 1, 0]


def test_what_is_handed_out_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "DECODED", DecodedImages())
    source = Source(rows=[picture(5)], labels=torch.zeros(1, dtype=torch.int64), class_names=None)
    part = Selection.whole("train", source)
    images = part.images(Shape(3, 72, in_memory=True))
    assert isinstance(images, Tensor)
    images.zero_()
    assert pixels([picture(5)]) == [5]


def test_no_more_is_kept_than_is_allowed() -> None:
    kept = DecodedImages(most=300)
    for number in range(9):
        kept.get(bytes([number]), 1, 10, lambda: torch.zeros(100, dtype=torch.uint8))
        assert kept.bytes <= 300
    made: list[int] = []
    for number in (8, 7, 6, 0):
        kept.get(bytes([number]), 1, 10, lambda: made.append(1) or torch.zeros(100))  # type: ignore[func-returns-value]
    assert made == [1]


def test_files_are_decoded_each_time(tmp_path: Path) -> None:
    Image.new("RGB", (80, 80), (7,) * 3).save(tmp_path / "a.png")
    labels = torch.zeros(1, dtype=torch.int64)
    source = Source(
        rows=[{"bytes": None, "path": "a.png"}], labels=labels, class_names=None, root=tmp_path
    )
    part = Selection.whole("train", source)
    for grey in (7, 9):
        Image.new("RGB", (80, 80), (grey,) * 3).save(tmp_path / "a.png")
        images = part.images(Shape(3, 72, in_memory=True))
        assert isinstance(images, Tensor)
        assert int(images.unique()) == grey
