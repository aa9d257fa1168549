"""From encoded bytes to pixels with Pillow."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

GREY_MODES = frozenset({"1", "L", "LA", "I", "F", "I;16"})


def open_picture(encoded: Mapping[str, bytes | str | None], *, what: str) -> Image:
    """Decode one image.

    Args:
        encoded: The image as `datasets` stores it: `bytes`, or else the `path` of a file.
        what: What an error calls the image, such as "image 17 of the train split".

    Raises:
        ValueError: There is no image, or it is damaged.
    """
    from PIL import Image, UnidentifiedImageError

    data, path = encoded.get("bytes"), encoded.get("path")
    source: io.BytesIO | str
    if isinstance(data, bytes):
        source = io.BytesIO(data)
    elif isinstance(path, str):
        source = path
    else:
        raise ValueError(f"{what} is missing: it has neither bytes nor a path")
    try:
        picture = Image.open(source)
        picture.load()
    except UnidentifiedImageError as error:
        raise ValueError(f"{what} cannot be decoded: not an image that Pillow knows") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{what} cannot be decoded: {error}") from error
    return picture


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
