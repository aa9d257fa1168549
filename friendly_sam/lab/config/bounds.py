"""Checks of one setting: numbers between bounds, texts that a terminal and a file system take."""

from __future__ import annotations

from typing import Any

from friendly_sam.lab.errors import printable

LONGEST_TEXT = 4096
"""Characters of a name or a path."""
LARGEST_SEED = 2**63 - 1
MOST_THREADS = 1024
"""Of one process; far beyond this, threads no longer start and libraries crash."""
MOST_SEEDS = 10_000
LARGEST = 1e9
"""Of a setting that has no bound of its own."""
LARGEST_IMAGE = 4096
"""Pixels a side of what a network sees."""


def number(name: str, value: float | None, low: float, high: float = LARGEST) -> None:
    """Refuse a number outside [low, high], naming setting, value and bounds."""
    if value is None or low <= value <= high:
        return
    if value < low and high > 1:
        raise ValueError(f"{name} must be at least {low:g}, got {shown(value)}")
    raise ValueError(f"{name} must be between {low:g} and {_bound(high)}, got {shown(value)}")


def positive(name: str, value: float | None, high: float = LARGEST) -> None:
    """Refuse a number outside (0, high]."""
    if value is None or 0 < value <= high:
        return
    if value <= 0:
        raise ValueError(f"{name} must be greater than 0, got {shown(value)}")
    raise ValueError(
        f"{name} must be greater than 0 and at most {_bound(high)}, got {shown(value)}"
    )


def below_one(name: str, value: float | None) -> None:
    """Refuse a number outside [0, 1)."""
    if value is not None and not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {shown(value)}")


def share(name: str, value: float | None) -> None:
    """Refuse a number outside (0, 1]."""
    if value is not None and not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {shown(value)}")


def text(name: str, value: str | None) -> None:
    """Refuse a text with control characters, or one that is too long."""
    if value is None:
        return
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"{name} must have at most {LONGEST_TEXT} characters, got {len(value):,}")
    if printable(value) != value or "\n" in value or "\t" in value:
        raise ValueError(f"{name} must not have control characters, got {shown(value)}")


def shown(value: Any) -> str:
    """Return a value as an error shows it: printable, and cut where it is long."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"an integer of about {value.bit_length() * 30103 // 100000 + 1} digits"
    words = printable(ascii(value) if isinstance(value, str) else str(value))
    return words if len(words) <= 100 else f"{words[:100]}..."


def _bound(high: float) -> str:
    return str(high) if isinstance(high, int) else f"{high:g}"
