"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from friendly_sam.lab.errors import LabError


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only once it is complete on disk.

    The bytes go to a hidden neighbour first, are flushed to the disk, and the neighbour is
    renamed. Whoever looks, at whatever moment the process dies, finds the old file or the
    new one, never a half of either.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write text or bytes through `atomic_file`."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk, where the system can do that."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_page(path: Path) -> None:
    """Refuse a page that could not be written: it is a file, in a folder that can be written to."""
    if path.is_dir() or not path.suffix:
        raise LabError(f"--output must name a file, such as report.html, not {path}")
    check_writable(path.absolute().parent)


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be made or written, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise LabError(f"output {folder} is a file, not a folder")
    parent = folder
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise LabError(f"cannot write to output folder {folder}: no permission in {parent}")
