"""The numbers that the paper prints, from one data file with their source."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("printed_numbers.json")


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A table as the paper prints it."""

    where: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@functools.cache
def _numbers() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return values


def source() -> str:
    """Name the paper."""
    return str(_numbers()["source"])


def printed(name: str) -> Printed | None:
    """Return the printed numbers of an experiment; `None` where the paper has a figure only."""
    entry = _numbers().get(name)
    if not isinstance(entry, dict):
        return None
    return Printed(
        where=str(entry["where"]),
        header=tuple(entry["header"]),
        rows=tuple(tuple(row) for row in entry["rows"]),
    )
