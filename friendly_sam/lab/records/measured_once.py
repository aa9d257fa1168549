"""Measurements that are made once and kept as JSON beside what they belong to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import check_writable, write_atomically
from friendly_sam.lab.reading import checked, read_json_object


def measured_once(
    path: Path,
    key: Mapping[str, Any],
    measure: Callable[[], Mapping[str, Any]],
    shape: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a file holds if it was measured for the same key; else measure and keep it.

    What cannot be written is refused before anything is measured.

    Args:
        path: the file.
        key: what the measurement depends on (settings, checksums); it is kept with the result.
        measure: makes the measurement.
        shape: what a file must hold to be read, see `reading.checked`.
    """
    known = kept(path, key, shape)
    if known is not None:
        return known
    check_writable(path.parent)
    if path.is_dir():
        raise LabError(f"cannot write {path}: it is a folder")
    text = json.dumps({**key, **measure()})
    write_atomically(path, text + "\n")
    return dict(json.loads(text))  # as it will be read again: lists, not tuples


def kept(
    path: Path, key: Mapping[str, Any], shape: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return what a file holds; `None` where it is missing, damaged or of another key."""
    try:
        found = read_json_object(path)
        checked(found, dict(shape or {}), str(path))
    except LabError:
        return None
    wanted = json.loads(json.dumps(dict(key)))
    return None if any(found.get(k) != v for k, v in wanted.items()) else found
