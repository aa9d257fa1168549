"""The commands that are attacked, how they are given, and what they leave."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest
import torch
from matplotlib.figure import Figure
from small_experiments import shrink

from friendly_sam.lab.cli import main as fsam
from friendly_sam.lab.cli import train as cli_train
from friendly_sam.lab.cli.run_settings import settings
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.records import recorder
from friendly_sam.lab.runner import pool
from friendly_sam.lab.training import trainer
from friendly_sam.lab.training.checkpoints import Checkpoints, read

TINY = (
    "--data.train_size", "120", "--data.test_size", "50", "--data.batch_size", "60",
    "--epochs", "2", "--engine.threads", "1", "--engine.device", "cpu",
)  # fmt: skip
QUIET = (*TINY, "--engine.tensorboard", "false")


@dataclass(frozen=True)
class Attacked:
    """A command to disturb, in the folder of the attack."""

    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    """A command that is done first, undisturbed."""


COMMANDS = {
    "train, F-SAM, a checkpoint each step": Attacked((
        "train", "--method.name", "fsam", "--engine.checkpoint_steps", "1", *QUIET,
        "--output", "run",
    )),
    "train, SGD, a checkpoint each epoch": Attacked((
        "train", "--method.name", "base", "--data.validation_size", "30", *QUIET,
        "--output", "run",
    )),
    "train, SAM, the last checkpoint only, TensorBoard": Attacked((
        "train", "--method.name", "sam", "--engine.checkpoint_epochs", "0",
        "--engine.keep_best", "false", *TINY, "--output", "run",
    )),
    "train --overwrite": Attacked(
        ("train", "--overwrite", "--method.name", "fsam", *QUIET, "--output", "run"),
        before=("train", "--method.name", "base", *QUIET, "--output", "run"),
    ),
    "sharpness": Attacked(
        ("sharpness", "run", "--images", "20", "--grid", "3", "--output", "page.html"),
        before=("train", *QUIET, "--output", "run"),
    ),
    "tune": Attacked((
        "tune", "--trials", "2", "--seeds", "1", "--search", "base.lr=0.05:0.2",
        "--data.validation_size", "30", *QUIET, "--output", "found",
    )),
    "reproduce": Attacked(("reproduce", "decay", "--workers", "1", "--output", "paper")),
}  # fmt: skip
"""One line a command: another one is attacked by adding it here."""

_KNOWN: dict[tuple[str, ...], RunConfig] = {}
COMPARED = ("metrics.jsonl", "status.json", "config.yaml", "sharpness.json", "landscape.json",
            "reproduce.json")  # fmt: skip


def give(words: tuple[str, ...], out: Path, told: TextIO | None = None) -> int:
    """Give a command in a fork, while the clock stands still; what it says goes to a file.

    What it prints on stdout goes to `told`, or nowhere.

    For speed, figures are not drawn and command lines are read once; the kills in fresh processes
    do without that.
    """
    os.chdir(out)
    trainer.time = SimpleNamespace(perf_counter=lambda: 0.0)  # type: ignore[assignment]
    recorder._now = lambda: "now"
    cli_train.settings = _known_settings
    Figure.savefig = _not_drawn  # type: ignore[method-assign]
    pool.multiprocessing = SimpleNamespace(get_context=_forking)  # type: ignore[assignment]
    shrink(pytest.MonkeyPatch(), epochs=1, seeds=1)
    with said_file(out).open("w") as said, contextlib.redirect_stdout(told or io.StringIO()):
        with contextlib.redirect_stderr(said):
            return fsam(list(words))


def give_fresh(words: tuple[str, ...], out: Path) -> int:
    """Give a command as a user does, in a Python of its own; for a fork."""
    os.chdir(out)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(said_file(out), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.execv(sys.executable, [sys.executable, "-m", "friendly_sam.lab", *words])


def said_file(out: Path) -> Path:
    """Return the file with what a command printed on stderr."""
    return out.parent / f"{out.name}.stderr"


def know(words: tuple[str, ...]) -> None:
    """Read the settings of a command line before the fork: that takes as long as the run."""
    if words[:1] == ("train",):
        rest = tuple(word for word in words[1:] if word != "--overwrite")
        _KNOWN[rest] = settings(rest)


def _known_settings(arguments: Sequence[str], *, resume: bool = False, **more: Any) -> RunConfig:
    if tuple(arguments) in _KNOWN and (not resume or Path("run", "config.yaml").is_file()):
        return _KNOWN[tuple(arguments)]
    return settings(arguments, resume=resume, **more)


def _not_drawn(_: Figure, file: io.BytesIO, **__: Any) -> None:
    file.write(b"<svg></svg>")


def _forking(_: str) -> object:
    import multiprocessing

    return multiprocessing.get_context("fork")  # a worker has torch at once


def left(out: Path, *, timed: bool = True) -> dict[str, object]:
    """Return what counts: files as they are, checkpoints by what they hold, and leftovers.

    Args:
        out: the folder of the attack.
        timed: whether the clock stood still; else times, and what depends on them, are left out.
    """
    found: dict[str, object] = {}
    for pattern in COMPARED:
        for path in sorted(out.rglob(pattern)):
            content = path.read_text()
            found[str(path.relative_to(out))] = content if timed else _without_times(content)
    for path in sorted(out.rglob("checkpoints")):
        for which in ("last", "best"):
            file = Checkpoints(path).path(which)
            state = read(file) if file else {}
            if not timed:
                state["position"] = _known(state.get("position", {}))
            found[f"{path.relative_to(out)}, {which}"] = bits(state)
        found[f"{path.relative_to(out)}, steps"] = sorted(
            file.name.split("-")[1] for file in path.glob("*.pt")
        )
    found["drafts"] = [path.name for path in out.rglob(".fsam-draft-*")]
    return found


def _known(position: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in position.items() if k not in ("seconds", "metrics", "digest")}


def _without_times(content: str) -> str:
    content = re.sub(r'"(seconds|time)": [^,}\n]*', "", content)
    return re.sub(r'"metrics.jsonl": "[0-9a-f]*"', "", content)


def bits(value: object) -> object:
    """Turn tensors into their bytes: pickle writes equal values in more ways than one."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().view(-1).numpy().tobytes()
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return [bits(item) for item in value] if isinstance(value, (list, tuple)) else value
