"""Values that a file or a command line should not hold, and what can be done to bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

HUGE = 10**400
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        False,
        -1,
        0,
        1,
        2,
        7,
        0.5,
        -0.5,
        1e308,
        float("nan"),
        float("inf"),
        10**30,
        HUGE,
        2**31,
        2**63,
        -(2**63),
        "",
        "x",
        "0.1",
        "1e30",
        "../../x",
        "/etc/passwd",
        "\x1b[2J",
        "$\\frac{$",
        "é",
        [],
        [1],
        [0.1, 0.2],
        ["a"],
        {},
        {"a": 1},
        [[1]],
        [None],
        {"name": "sam"},
        "sgd",
        "fsam",
        "a" * 5000,
        "os.system",
        [HUGE],
        {"a": {"a": {"a": []}}},
    ]
)
ANY: st.SearchStrategy[Any] = VALUES | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
DICE = st.integers(0, 2**32 - 1).map(random.Random)
PLACES = ("fifo", "zero", "dangling", "folder", "passwd", "socketless", "loop")


def leaves(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested mappings and lists."""
    found: list[tuple[Any, ...]] = [prefix] if prefix else []
    items = value.items() if isinstance(value, dict) else ()
    for key, item in items or (enumerate(value) if isinstance(value, list) else ()):
        found += leaves(item, (*prefix, key))
    return found


def put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    """Replace what is at a place, where it is still there."""
    for key in place[:-1]:
        if (isinstance(value, dict) and key in value) or (
            isinstance(value, list) and isinstance(key, int) and key < len(value)
        ):
            value = value[key]
        else:
            return
    if isinstance(value, dict) or (
        isinstance(value, list) and isinstance(place[-1], int) and place[-1] < len(value)
    ):
        value[place[-1]] = new


def damaged(content: bytes, dice: random.Random) -> bytes:
    """Flip bits, cut, blank, insert or repeat."""
    data = bytearray(content or b"x")
    at = dice.randrange(len(data))
    how = dice.choice(("flip", "flip", "cut", "blank", "insert", "repeat", "empty"))
    if how == "flip":
        for _ in range(dice.randrange(1, 20)):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "blank":
        data[at : at + 200] = bytes(len(data[at : at + 200]))
    elif how == "insert":
        data[at:at] = dice.randbytes(30)
    elif how == "repeat":
        data[at:at] = data[: at + 1]
    else:
        data.clear()
    return bytes(data)


def replace_by(path: Path, kind: str) -> None:
    """Put something that is no regular file in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        targets = {"zero": "/dev/zero", "dangling": "nowhere", "passwd": "/etc/passwd"}
        path.symlink_to(targets.get(kind, "/dev/stdin"))
