"""Files of others, read within bounds: regular files, of a bounded size, with checked values.

Run folders, data, models and configs may come from anybody, see SECURITY.md. Whatever is read of
them passes here first, so that a FIFO, a link to a device, a file of gigabytes or a value of
another type ends in one line.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from friendly_sam.lab.errors import LabError

LARGEST_JSON = 32 << 20
"""Bytes of a JSON file: a hundred thousand epochs of metrics."""
DEEPEST = 32
"""Lists and mappings inside one another."""
LARGEST_INTEGER = 2**63 - 1
LARGEST_NUMBER = 1e100
"""Its square is still a number, and so are sums of those; infinity is said as such."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def regular_size(path: Path) -> int:
    """Return the size of a regular file, links followed; refuse everything else.

    Nothing is opened: to open a FIFO waits for a writer, to open a device may move it.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise LabError(f"cannot read {path}: {_reason(error)}") from error
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise LabError(f"cannot read {path}: it is {kind}, not a regular file")
    return found.st_size


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; never waits, whatever `path` is."""
    regular_size(path)
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise LabError(f"cannot read {path}: {_reason(error)}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # replaced since we looked
        os.close(handle)
        raise LabError(f"cannot read {path}: it is not a regular file")
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, *, limit: int = LARGEST_JSON) -> bytes:
    """Read a whole regular file of at most `limit` bytes."""
    with open_regular(path) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise LabError(f"cannot read {path}: {_reason(error)}") from error
    if len(content) > limit:
        size = max(regular_size(path), len(content))
        raise LabError(f"cannot read {path}: {size:,} bytes, and at most {limit:,} are read")
    return content


def read_json(path: Path) -> Any:
    """Read a JSON file: UTF-8, not too deep, no integer beyond 64 bits, no number beyond 1e100."""
    return parse_json(read_bytes(path), str(path))


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds a mapping."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise LabError(f"{path} is damaged: it holds {_kind(values)}, not a mapping")
    return values


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with a JSON mapping a line; a last line without its end is left out."""
    lines = read_bytes(path).split(b"\n")
    found = []
    for number, line in enumerate(lines[:-1], start=1):
        values = parse_json(line, f"{path}, line {number}")
        if not isinstance(values, dict):
            raise LabError(f"{path}, line {number} is damaged: {_kind(values)}, not a mapping")
        found.append(values)
    return found


def parse_json(content: bytes, source: str) -> Any:
    """Parse JSON within the same bounds; `source` is what an error names."""
    try:
        values = json.loads(content.decode("utf-8"), parse_int=_integer, parse_float=_number)
        _check_plain(values)
    except (ValueError, RecursionError) as error:
        reason = f": {error}" if isinstance(error, _BoundError) else ""
        raise LabError(f"{source} is damaged{reason}") from error
    return values


def checked(value: Any, shape: Any, source: str) -> Any:
    """Return `value` if it has a shape, else raise an error that names the place.

    Args:
        value: what a JSON file held.
        shape: `float` (any number), `int`, `str`, `bool`, `dict`, `[shape]` for a list of those,
            `{name: shape}` for a mapping with at least these names, or `(shape, ...)` for a choice.
        source: the file.

    Example:
        >>> checked({"x": [1, 2.5]}, {"x": [float]}, "a.json")
        {'x': [1, 2.5]}
    """
    for place, problem in _misfits(value, shape, ""):
        raise LabError(f"{source} is damaged: {place or 'it'} {problem}")
    return value


def _misfits(value: Any, shape: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(shape, tuple):
        if all(any(True for _ in _misfits(value, one, place)) for one in shape):
            yield place, f"holds {_kind(value)}"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield place, f"holds {_kind(value)}, not a list"
            return
        for number, item in enumerate(value):
            yield from _misfits(item, shape[0], f"{place}[{number}]")
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            yield place, f"holds {_kind(value)}, not a mapping"
            return
        for name, inner in shape.items():
            inside = f"{place}.{name}" if place else name
            if name not in value:
                yield inside, "is missing"
            else:
                yield from _misfits(value[name], inner, inside)
    elif not _is_a(value, shape):
        yield place, f"holds {_kind(value)}, not {_NAMES.get(shape, shape)}"


_NAMES = {float: "a number", int: "a whole number", str: "text", bool: "true or false",
          dict: "a mapping", list: "a list", type(None): "null"}  # fmt: skip


def _is_a(value: Any, kind: Any) -> bool:
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), type(value).__name__)


class _BoundError(ValueError):
    """A value beyond the bounds; its message is for the user."""


def _integer(digits: str) -> int:
    if len(digits) > 20 or abs(number := int(digits)) > LARGEST_INTEGER:
        raise _BoundError(f"an integer of {len(digits)} digits")
    return number


def _number(digits: str) -> float:
    number = float(digits)
    if LARGEST_NUMBER < abs(number) < math.inf:
        raise _BoundError(f"a number beyond {LARGEST_NUMBER:g}")
    return number


def _check_plain(values: Any) -> None:
    """Refuse what is nested too deep, and text that is no Unicode (half a surrogate pair)."""
    level = [values]
    for _ in range(DEEPEST):
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                deeper.extend(value)
                deeper.extend(value.values())
            elif isinstance(value, list):
                deeper.extend(value)
            elif isinstance(value, str):
                value.encode()
        level = deeper
        if not level:
            return
    raise _BoundError(f"nested more than {DEEPEST} levels deep")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
