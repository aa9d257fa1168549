"""Bad files of settings, as `--config` and inside of a run's folder."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from bad_values import ANY, DICE, PLACES, damaged, leaves, put, replace_by
from hypothesis import strategies as st
from lab_runs import tiny_config

from friendly_sam.lab.config.yaml import to_dict

CONFIG = to_dict(tiny_config(Path("run"), epochs=1, data={"train_size": 64, "test_size": 50}))
CONFIG["data"] |= {"batch_size": 32}
KEEP = {("output",), ("engine", "device"), ("epochs",), ("engine", "threads"), ("data", "workers")}
LONG = {("model", "name"), ("data", "name")}
PLACES_IN = [place for place in leaves(CONFIG) if place not in KEEP]
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)
TEXTS = [
    BOMB,
    "&a [*a]",
    "a: &a {b: *a}",
    "[" * 5000,
    "{a: " * 5000,
    "config: /etc/passwd",
    "data: /etc/passwd",
    "data: os.system",
    "data: {class_path: os.system}",
    "!!python/name:os.system",
    "!!python/object/apply:os.system [id]",
    "seed: " + "9" * 400,
    "epochs: 1e30",
    "#" * 200_000,
    "? {a: b}\n: 1",
    "seed: !!binary aGk=",
    "seed: 2001-13-45",
    "seed: !!int ''",
    "\x00",
    "\ufeff",
    'data: {root: "a\\e[2J"}',
    "<<: {seed: 1}",
    "seed: 1:2:3",
    "%YAML 9.9\n---\na",
    "--- a\n--- b",
    "epochs: 0x7fffffffffffffffffff",
    "data: [1, 2]",
    "1: 2",
    "null",
    "",
    "- 1",
    "~: 1",
    "model: {weights: fifo}",
    "model: {weights: /dev/zero}",
    "model: {name: 'hf:.'}",
    "data: {name: x, root: /dev}",
    "data: {name: x, root: fifo}",
]


def yaml_files(material: Path) -> st.SearchStrategy[Callable[[Path], list[str]]]:
    """Settings changed at random, bytes damaged, texts made up, files that are none."""
    changes = st.lists(st.tuples(st.sampled_from(PLACES_IN), ANY), min_size=1, max_size=3)
    whole = yaml.safe_dump(CONFIG).encode()
    contents = st.one_of(
        changes.map(_changed),
        changes.map(_changed),
        DICE.map(lambda dice: damaged(whole, dice)),
        st.sampled_from(TEXTS).map(lambda text: text.encode()),
        st.binary(max_size=60),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    )
    return st.builds(
        _given, contents, st.sampled_from([None] * 30 + list(PLACES)), st.booleans()
    ) | (st.builds(_in_a_run, st.just(material), contents))


def _changed(changes: list[tuple[tuple[Any, ...], Any]]) -> bytes:
    config = copy.deepcopy(CONFIG)
    for place, value in changes:
        put(config, place, value)
    try:
        return yaml.safe_dump(config, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError):  # an integer of 5,000 digits has no text
        return b"seed: " + b"9" * 5000


def _given(content: bytes, kind: str | None, weights: bool) -> Callable[[Path], list[str]]:
    def prepare(place: Path) -> list[str]:
        import os

        path = place / "outside" / "config.yaml"
        path.write_bytes(content)
        if kind is not None:
            replace_by(path, kind)
        os.mkfifo(place / "work" / "fifo")
        more = ["--model.weights", "fifo"] if weights and kind else []
        last = ["--epochs", "1", "--engine.threads", "1", "--output", "run"]
        return ["train", "--config", str(path), *more, *last]

    return prepare


def _in_a_run(material: Path, content: bytes) -> Callable[[Path], list[str]]:
    def prepare(place: Path) -> list[str]:
        shutil.copytree(material / "cut", place / "work" / "run")
        (place / "work" / "run" / "config.yaml").write_bytes(content)
        return ["train", "--resume", "--output", "run"]

    return prepare
