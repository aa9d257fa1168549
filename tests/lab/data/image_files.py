import io
from collections.abc import Callable
from pathlib import Path

import numpy as np

WriteParquet = Callable[..., Path]
"""The fixture `write_parquet`."""


def encode(index: int, size: tuple[int, int], mode: str = "RGB", form: str = "PNG") -> bytes:
    """An image that is the same for the same index, and another for another."""
    from PIL import Image

    random = np.random.default_rng(index)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    buffer = io.BytesIO()
    Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(buffer, form)
    return buffer.getvalue()
