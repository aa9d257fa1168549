"""Bad JSON files of a run: values of other types, damaged bytes, files that are none."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_values import ANY, DICE, PLACES, damaged, leaves, put, replace_by
from hypothesis import strategies as st

FILES = (
    "status.json",
    "metrics.jsonl",
    "environment.json",
    "sharpness.json",
    "landscape.json",
    "checkpoints/index.json",
    "config.yaml",
)
RAW = [
    b"[" * 5000,
    b'{"a":' * 5000,
    b"9" * 400,
    b"9" * 5000,
    b"null",
    b"[]",
    b"{}",
    b"\xff\xfe",
    b"",
    b'{"state": "finished"}',
    b'{"state": "\\u001b[2J"}',
    b'{"state": ["finished"]}',
    b'{"starts": {}}',
    b'{"starts": []}',
    b'{"starts": [1]}',
    b'{"starts": [{"gpus": 3}]}',
    b'{"starts": [{"packages": []}]}',
    b'{"epoch": 1, "test_accuracy": null}\n',
    b"[1]\n",
    b"1\n",
    b'{"epoch": 1, "test_accuracy": "x", "train_loss": [1]}\n',
    b'{"test_accuracy": NaN}\n',
    b'{"epoch": 1, "test_accuracy": 1e308, "train_loss": -1e308, "seconds": 1e308}\n',
    b'{"epoch": 1, "test_accuracy": Infinity, "train_loss": 1, "seconds": 1}\n',
    b'{"test_accuracy": ' + b"9" * 400 + b"}\n",
    b'{"\\ud800": 1}',
    b'{"last": "../x"}',
]
COMMANDS = ("report", *["resume"] * 8, "sharpness")


def records(material: Path) -> st.SearchStrategy[Callable[[Path], list[str]]]:
    """One or two files of a run changed, then read by each command."""
    change = st.tuples(
        st.sampled_from(FILES),
        st.one_of(
            st.lists(st.tuples(DICE, ANY), min_size=1, max_size=3),
            DICE,
            st.sampled_from(RAW),
            st.sampled_from(PLACES),
        ),
    )
    return st.builds(
        _input,
        st.just(material),
        st.sampled_from(["cut", "finished"]),
        st.lists(change, min_size=1, max_size=2, unique_by=lambda one: one[0]),
        st.sampled_from(COMMANDS),
        st.booleans(),
    )


def _input(
    material: Path, which: str, changes: list[tuple[str, Any]], command: str, unsealed: bool
) -> Callable[[Path], list[str]]:
    def prepare(place: Path) -> list[str]:
        run = place / "work" / "run"
        shutil.copytree(material / which, run)
        if unsealed:
            _without_digests(run / "status.json")
        for name, change in changes:
            if (run / name).parent.is_dir():
                _change(run / name, change)
        if command == "resume":
            return ["train", "--resume", "--output", "run"]
        if command == "report":
            return ["report", "run", "--output", "page.html"]
        few = ["--images", "20", "--grid", "3", "--tolerance", "0.5"]
        return ["sharpness", "run", *few, "--output", "page.html"]

    return prepare


def _without_digests(path: Path) -> None:
    values = json.loads(path.read_text())
    values.pop("sha256", None)
    path.write_text(json.dumps(values))


def _change(path: Path, change: Any) -> None:
    if isinstance(change, str):
        replace_by(path, change)
    elif isinstance(change, bytes):
        path.write_bytes(change)
    elif isinstance(change, random.Random):
        path.write_bytes(damaged(path.read_bytes() if path.is_file() else b"", change))
    elif path.is_file():
        _change_values(path, change)


def _change_values(path: Path, changes: list[tuple[random.Random, Any]]) -> None:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    written = []
    for line in lines:
        values: Any = line
        with contextlib.suppress(ValueError):
            values = json.loads(line)
        places = leaves(values)
        for dice, new in changes:
            if places:
                put(values, dice.choice(places), new)
        try:
            written.append(json.dumps(values))
        except ValueError:
            written.append("9" * 5000)
    path.write_text("\n".join([*written, ""]))
