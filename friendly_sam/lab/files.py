"""The one place where the lab writes: files that appear whole or not at all, folders, locks.

Folders of runs may come from others, so nothing here writes through a link. A file is written
under a random name that did not exist before and takes its own name, replacing whatever had it,
once it is complete on disk. Whoever looks, at whatever moment the process dies, finds the old file
or the new one; a draft that a dead process left behind goes with the next write to its folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO

from friendly_sam.lab.errors import LabError

DRAFT = ".fsam-draft-"
"""What the names of unfinished files begin with."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a text or bytes as a whole."""
    with draft(path.parent) as file:
        file.write(content.encode() if isinstance(content, str) else content)
        publish(file, path)


def write_to_cache(path: Path, content: bytes) -> None:
    """Write one of many files as a whole; not flushed to the disk, so its reader has to check."""
    with draft(path.parent, sweep=False) as file:
        file.write(content)
        publish(file, path, durable=False)


@contextlib.contextmanager
def draft(folder: Path, *, sweep: bool = True) -> Iterator[BufferedRandom]:
    """Open a new file in a folder; it is gone at the end unless `publish` gave it a name."""
    if sweep:
        _sweep(folder)
    with _new_draft(folder) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


def publish(file: BinaryIO, path: Path, *, durable: bool = True) -> None:
    """Flush a draft, to the disk unless told otherwise, then give it its name, at once."""
    file.flush()
    if durable:
        os.fsync(file.fileno())
    if os.name != "posix":  # Windows renames no open file
        file.close()
    os.replace(file.name, path)
    if durable:
        _sync_folder(path.parent)


def _new_draft(folder: Path) -> BufferedRandom:
    while True:
        # "x" refuses a name that exists, a link that leads nowhere included.
        file = (folder / f"{DRAFT}{secrets.token_hex(8)}").open("x+b")
        if try_lock(file):
            return file
        file.close()  # another process swept it up between the two lines


def _sweep(folder: Path) -> None:
    """Delete drafts that no living process holds."""
    for path in folder.glob(f"{DRAFT}*"):
        with contextlib.suppress(OSError, LabError), open_to_append(path) as file:
            if try_lock(file):
                path.unlink()


def try_lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed; false where another process holds or has deleted it."""
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return os.fstat(file.fileno()).st_nlink > 0


def open_to_append(path: Path) -> BinaryIO:
    """Open a file of ours: never through a link, never a pipe or a device that would block."""
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | careful, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise LabError(f"{path} is a link, which is not followed: delete it") from error
        if path.exists() and not path.is_file():
            raise LabError(f"{path} is not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise LabError(f"{path} is not a regular file")
    return os.fdopen(handle, "ab")


def make_folder(folder: Path) -> None:
    """Make a folder where it is missing; one that is a link is refused."""
    refuse_link(folder)
    folder.mkdir(parents=True, exist_ok=True)


def refuse_link(folder: Path) -> None:
    """Refuse a folder that is a link: it may lead anywhere."""
    if folder.is_symlink():
        raise LabError(f"{folder} is a link, which is not followed: put a folder in its place")


def delete(path: Path) -> None:
    """Delete a file or a folder with all it holds; of a link, the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
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
    parent = folder
    while not os.path.lexists(parent) and parent != parent.parent:
        parent = parent.parent
    if not parent.exists():
        raise LabError(f"cannot write to output folder {folder}: {parent} is a link to nothing")
    if not parent.is_dir():
        below = "is" if parent == folder else f"is below {parent},"
        raise LabError(f"output {folder} {below} a file, not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise LabError(f"cannot write to output folder {folder}: no permission in {parent}")
