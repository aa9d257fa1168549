"""From encoded bytes to pixels with Pillow."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import torch
from torch import Tensor

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.reading import open_regular

if TYPE_CHECKING:
    from PIL.Image import Image

GREY_MODES = frozenset({"1", "L", "LA", "I", "F", "I;16"})
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""What is decoded. Pillow knows more, EPS among them, for which it starts Ghostscript."""
MOST_PIXELS = 1 << 26
"""Of one image, as it is stored or after it was resized: 8192 x 8192."""

PART = 1 << 20
"""Bytes of the head and of the tail by which a file is known."""


def open_picture(
    encoded: Mapping[str, bytes | str | None], *, what: str, root: Path | None = None
) -> Image:
    """Decode one image.

    Args:
        encoded: The image as `datasets` stores it: `bytes`, or else the `path` of a file.
        what: What an error calls the image, such as "image 17 of the train split".
        root: Folder that the file must lie in, links followed; None: no path is allowed.

    Raises:
        ValueError: There is no image, it is damaged, too large, or lies somewhere else.
    """
    from PIL import Image, UnidentifiedImageError

    data, path = encoded.get("bytes"), encoded.get("path")
    if isinstance(data, bytes):
        source: BinaryIO = io.BytesIO(data)
    elif isinstance(path, str):
        source = _open_inside(path, root, what)
    else:
        raise ValueError(f"{what} is missing: it has neither bytes nor a path")
    with source, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Pillow warns of is checked here, or harmless
        try:
            picture = Image.open(source, formats=FORMATS)
            check_pixels(*picture.size)
            picture.load()
        except UnidentifiedImageError as error:
            names = ", ".join(FORMATS)
            raise ValueError(f"{what} cannot be decoded: not one of {names}") from error
        except Exception as error:  # Pillow's decoders raise whatever a damaged file leads to
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{what} cannot be decoded: {reason}") from error
    return picture


def stored_bytes(
    encoded: Mapping[str, bytes | str | None], *, what: str, root: Path | None = None
) -> bytes:
    """Return an image as it is stored; of a large file the head and the tail."""
    data, path = encoded.get("bytes"), encoded.get("path")
    if isinstance(data, bytes) or not isinstance(path, str):
        return data if isinstance(data, bytes) else b""
    with _open_inside(path, root, what) as file:
        head = file.read(PART)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - PART, len(head)))
        return head + file.read(PART)


def _open_inside(path: str, root: Path | None, what: str) -> BinaryIO:
    """Open an image file of a data folder, and none of any other place."""
    if root is None:
        raise ValueError(f"{what} is given by a path, and this data has no folder")
    try:
        place = (root / path).resolve()
        inside = place.is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"{what} has a path that cannot be read") from error
    if not inside:
        raise ValueError(f"{what} lies outside of the data folder {str(root)!r}: {place}")
    try:
        return open_regular(place)
    except LabError as error:
        raise ValueError(f"{what}: {error}") from error


def check_pixels(width: int, height: int) -> None:
    """Refuse an image with too many pixels, before any of them takes memory."""
    if width * height > MOST_PIXELS:
        raise ValueError(
            f"{width}x{height} are {width * height:,} pixels, at most {MOST_PIXELS:,} are allowed"
        )


def channels_of(picture: Image) -> int:
    """Return 1 for grey images, 3 for all others."""
    return 1 if picture.mode in GREY_MODES else 3


def with_channels(picture: Image, channels: int) -> Image:
    """Convert to grey (1) or RGB (3), where it is not so already."""
    mode = "L" if channels == 1 else "RGB"
    return picture if picture.mode == mode else picture.convert(mode)


def fit_square(picture: Image, size: int, *, resized: int | None = None) -> Image:
    """Resize the short side to `resized` (default `size`), then crop the centre `size` x `size`.

    Pillow's bilinear filter widens with the reduction, so small images are not aliased.
    """
    from PIL import Image

    width, height = picture.size
    side = size if resized is None else resized
    scale = side / min(width, height)
    new_width, new_height = max(side, round(width * scale)), max(side, round(height * scale))
    check_pixels(new_width, new_height)
    if (new_width, new_height) != (width, height):
        picture = picture.resize((new_width, new_height), Image.Resampling.BILINEAR)
    left, top = (new_width - size) // 2, (new_height - size) // 2
    if (new_width, new_height) != (size, size):
        picture = picture.crop((left, top, left + size, top + size))
    return picture


def to_tensor(picture: Image) -> Tensor:
    """Copy the pixels into a uint8 tensor [C, H, W]."""
    pixels = np.array(picture, dtype=np.uint8)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def from_tensor(pixels: Tensor) -> Image:
    """Make a picture of a uint8 tensor [C, H, W]."""
    from PIL import Image

    channels_last = pixels.permute(1, 2, 0)
    return Image.fromarray(
        (channels_last.squeeze(2) if len(pixels) == 1 else channels_last).numpy()
    )
