"""Bad checkpoints: crafted contents under a right checksum, damage, archives that inflate."""

from __future__ import annotations

import hashlib
import io
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bad_values import ANY, DICE, damaged, leaves, put
from hypothesis import strategies as st

TENSORS = st.sampled_from(
    [
        torch.ones(5),
        torch.ones(0),
        torch.tensor(float("nan")),
        torch.ones(2, 2, dtype=torch.int8),
        torch.ones(3).to_sparse(),
        torch.ones(1).expand(10**9),
        torch.tensor([2**62]),
        torch.tensor(1j),
    ]
)


def checkpoints(material: Path) -> st.SearchStrategy[Callable[[Path], list[str]]]:
    """The newest checkpoint of a run that was cut off, changed; then resumed, or as weights."""
    change = st.one_of(
        st.lists(st.tuples(DICE, ANY | TENSORS), min_size=1, max_size=2),
        st.lists(st.tuples(DICE, ANY | TENSORS), min_size=1, max_size=2),
        DICE,
        st.sampled_from(["inflate", "list", "empty", "pickle"]),
    )
    return st.builds(_input, st.just(material), change, st.booleans())


def _input(material: Path, change: Any, resume: bool) -> Callable[[Path], list[str]]:
    def prepare(place: Path) -> list[str]:
        run = place / "work" / "run"
        shutil.copytree(material / "cut", run)
        files = sorted((run / "checkpoints").glob("*.pt"))
        newest = files[-1]
        content = _changed(newest.read_bytes(), change)
        for path in files:
            path.unlink()
        named = newest.with_name("last.pt")
        if newest.name.startswith("step-"):
            digest = hashlib.sha256(content).hexdigest()[:16]
            named = newest.with_name(f"{newest.name[:13]}-{digest}.pt")
        named.write_bytes(content)
        if resume:
            return ["train", "--resume", "--output", "run"]
        small = ["--data.train_size", "40", "--data.test_size", "20", "--data.batch_size", "20"]
        small += ["--epochs", "1", "--engine.threads", "1", "--engine.tensorboard", "false"]
        return ["train", "--model.weights", str(named), *small, "--output", "other"]

    return prepare


def _changed(content: bytes, change: Any) -> bytes:
    if isinstance(change, random.Random):
        return damaged(content, change)
    if change == "inflate":
        return _inflating(content)
    state: Any = torch.load(io.BytesIO(content), weights_only=True)
    if change == "list":
        state = [1, 2]
    elif change == "empty":
        state = {}
    elif change == "pickle":
        state = {"model": _Evil()}
    else:
        places = leaves(state)
        for dice, new in change:
            put(state, dice.choice(places), new)
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


class _Evil:
    def __reduce__(self) -> Any:
        return eval, ("open('../outside/pwned', 'w').write('x')",)


def _inflating(content: bytes) -> bytes:
    """The same archive, compressed, with a record of zeros that would fill the memory."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            big = name.endswith("data/0")
            new.writestr(name, bytes(200 << 20) if big else old.read(name))
    return file.getvalue()
