"""Numbers of things in words: "no run", "1 run", "2 runs"."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """Return a number with its noun, in the singular or the plural.

    Example:
        >>> [counted(n, "process") for n in (0, 1, 1200)]
        ['no process', '1 process', '1,200 processes']
        >>> [counted(3, thing) for thing in ("batch", "epoch", "run")]
        ['3 batches', '3 epochs', '3 runs']
    """
    if number < 2:
        return f"{number or 'no'} {thing}"
    return f"{number:,} {thing}{'es' if thing.endswith(('s', 'tch', 'x')) else 's'}"
