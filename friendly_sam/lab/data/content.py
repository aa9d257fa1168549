"""Data known by content: names and times of change may stay while the bytes are others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from friendly_sam.lab.reading import open_regular, regular_size

READ_WHOLE = 256 << 20
"""Bytes of a file up to which all of it is digested."""
SAMPLES = 256
SAMPLE_BYTES = 64 << 10


def digest_of_files(paths: Iterable[Path], *more: str) -> str:
    """Return a digest of files: of all their bytes, or of size, head, tail and samples.

    Args:
        paths: the files, in order.
        more: what else the digest is to depend on.
    """
    found = hashlib.blake2b(repr(more).encode(), digest_size=16)
    for path in paths:
        size = regular_size(path)
        found.update(f"{size};".encode())
        with open_regular(path) as file:
            if size <= READ_WHOLE:
                while chunk := file.read(1 << 20):
                    found.update(chunk)
                continue
            for number in range(SAMPLES):  # the first is the head, the last the tail
                file.seek((size - SAMPLE_BYTES) * number // (SAMPLES - 1))
                found.update(file.read(SAMPLE_BYTES))
    return found.hexdigest()
