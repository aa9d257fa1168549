"""Images that this process has decoded before: the runs of a search use the same ones."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor

MOST = 256 << 20
"""Bytes that are kept: some 9,000 images of 96x96, or all of CIFAR."""


class DecodedImages:
    """Pixels by the content that they were decoded from; what was used least recently goes first.

    Args:
        most: Bytes of pixels that are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most, self.bytes = most, 0
        self._kept: OrderedDict[tuple[bytes, int, int], Tensor] = OrderedDict()

    def get(self, content: bytes, channels: int, size: int, decode: Callable[[], Tensor]) -> Tensor:
        """Return an image of this content, of so many channels and pixels a side."""
        key = hashlib.blake2b(content, digest_size=16).digest(), channels, size
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        pixels = self._kept[key] = decode()
        self.bytes += pixels.nbytes
        while self.bytes > self.most:
            self.bytes -= self._kept.popitem(last=False)[1].nbytes
        return pixels


DECODED = DecodedImages()
