"""Kill the lab's commands before and after every system call that changes a file: `make attack`.

Each command is killed at one such moment, then given again until it is done. What it leaves must be
what the same command leaves when nobody disturbs it, bit for bit: the last and the best
checkpoint, metrics, status, measurements. The clock stands still, so that times are equal
too. Then bits are flipped in checkpoints. Exits with 1 if anything was lost or changed.

    python tests/lab/kills.py               # all of it
    python tests/lab/kills.py --sample 30   # as many kills, spread evenly
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from faults import child, warm_up
from lab_runs import same
from small_experiments import shrink
from system_calls import SUPPORTED, Watched, watch

from friendly_sam.lab.cli import main as fsam
from friendly_sam.lab.cli.run_settings import settings
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records import recorder
from friendly_sam.lab.runner import pool
from friendly_sam.lab.training import trainer
from friendly_sam.lab.training.checkpoints import Checkpoints, read

TINY = (
    "--data.train_size", "120", "--data.test_size", "50", "--data.batch_size", "60",
    "--epochs", "2", "--engine.threads", "1", "--engine.device", "cpu",
)  # fmt: skip
FLAGS = ("--resume", "--overwrite")
QUIET = (*TINY, "--engine.tensorboard", "false")


@dataclass(frozen=True)
class Attacked:
    """A command to kill; `{out}` stands for the folder of the attack."""

    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    """A command that is done first, undisturbed."""


COMMANDS = {
    "train, F-SAM, a checkpoint each step": Attacked((
        "train", "--method.name", "fsam", "--engine.checkpoint_steps", "1", *QUIET,
        "--output", "{out}/run",
    )),
    "train, SGD, a checkpoint each epoch": Attacked((
        "train", "--method.name", "base", "--data.validation_size", "30", *QUIET,
        "--output", "{out}/run",
    )),
    "train, SAM, the last checkpoint only": Attacked((
        "train", "--method.name", "sam", "--engine.checkpoint_epochs", "0",
        "--engine.keep_best", "false", *TINY, "--output", "{out}/run",
    )),
    "train --overwrite": Attacked(
        ("train", "--overwrite", "--method.name", "fsam", *QUIET, "--output", "{out}/run"),
        before=("train", "--method.name", "base", *QUIET, "--output", "{out}/run"),
    ),
    "reproduce": Attacked(("reproduce", "decay", "--workers", "1", "--output", "{out}")),
    "tune": Attacked((
        "tune", "--trials", "2", "--seeds", "1", "--search", "base.lr=0.05:0.2",
        "--data.validation_size", "30", *QUIET, "--output", "{out}",
    )),
    "sharpness": Attacked(
        ("sharpness", "{out}/run", "--images", "20", "--grid", "3", "--output", "{out}/page.html"),
        before=("train", *QUIET, "--output", "{out}/run"),
    ),
}  # fmt: skip
"""One line a command: another one is attacked by adding it here."""

COMPARED = ("metrics.jsonl", "status.json", "config.yaml", "sharpness.json", "landscape.json",
            "reproduce.json")  # fmt: skip


@functools.cache
def config_of(words: tuple[str, ...], out: Path) -> RunConfig:
    """Read the settings of `fsam train`; once, as that takes longer than the run."""
    return resolve(settings([word.format(out=out) for word in words[1:]]))


def run(words: tuple[str, ...], out: Path) -> int:
    """Give a command in this process, silently, while the clock stands still."""
    torch.set_num_threads(1)
    trainer.time = SimpleNamespace(perf_counter=lambda: 0.0)  # type: ignore[assignment]
    recorder._now = lambda: "now"
    pool.multiprocessing = SimpleNamespace(get_context=_forking)  # type: ignore[assignment]
    shrink(pytest.MonkeyPatch(), epochs=1, seeds=1)
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        if words[0] == "train":
            code = _train(words, out)
        else:
            code = fsam([word.format(out=out) for word in words])
    (out.parent / f"{out.name}.stderr").write_text(said.getvalue())
    return code


def _train(words: tuple[str, ...], out: Path) -> int:
    options = {name: f"--{name}" in words for name in ("resume", "overwrite")}
    try:
        trainer.train(config_of(tuple(w for w in words if w not in FLAGS), out), **options)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _forking(_: str) -> object:
    import multiprocessing

    return multiprocessing.get_context("fork")  # a worker has torch at once


def again(words: tuple[str, ...], out: Path) -> int:
    """Give a command again, as a user would."""
    if words[0] != "train":
        return child(lambda: run(words, out))[1]
    plain = tuple(word for word in words if word != "--overwrite")
    code = child(lambda: run((*plain, "--resume"), out))[1]
    if code == 2 and "--overwrite" in words:  # the run that is to be replaced is still there
        code = child(lambda: run(words, out))[1]
    return code


def left(out: Path) -> dict[str, object]:
    """Return what counts: files as they are, checkpoints by what they hold, and leftovers."""
    found: dict[str, object] = {}
    for pattern in COMPARED:
        for path in sorted(out.rglob(pattern)):
            found[str(path.relative_to(out))] = path.read_bytes()
    for path in sorted(out.rglob("checkpoints")):
        for which in ("last", "best"):
            file = Checkpoints(path).path(which)
            found[f"{path.relative_to(out)}, {which}"] = file and bits(read(file))
        found[f"{path.relative_to(out)}, steps"] = sorted(
            file.name.split("-")[1] for file in path.glob("*.pt")
        )
    found["drafts"] = [path.name for path in out.rglob(".fsam-draft-*")]
    return found


def bits(value: object) -> object:
    """Turn tensors into their bytes: pickle writes equal values in more ways than one."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().view(-1).numpy().tobytes()
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return [bits(item) for item in value] if isinstance(value, (list, tuple)) else value


@dataclass
class Target:
    """A command, where it starts from, and what it leaves when nobody disturbs it."""

    name: str
    attacked: Attacked
    folder: Path

    def __post_init__(self) -> None:
        self.out = self.folder / "out"
        self.out.mkdir(parents=True)
        for words in (self.attacked.before, self.attacked.words):
            if words[:1] == ("train",):
                config_of(tuple(word for word in words if word not in FLAGS), self.out)
        if self.attacked.before:
            assert child(lambda: run(self.attacked.before, self.out))[1] == 0, self.said()
        shutil.copytree(self.out, self.folder / "start")
        self.moments = self.watched(None).moments
        self.wanted = left(self.out)
        assert self.wanted

    def said(self) -> str:
        """Return what the last command printed on stderr."""
        return (self.folder / "out.stderr").read_text()

    def watched(self, kill_at: int | None) -> Watched:
        """Give the command from the start, and kill it at a moment."""
        shutil.rmtree(self.out)
        shutil.copytree(self.folder / "start", self.out)
        seen = watch(lambda: run(self.attacked.words, self.out), self.folder, kill_at)
        assert kill_at is not None or seen.code == 0, self.said()
        return seen

    def kill(self, moment: int) -> str:
        """Kill at a moment, go on; say what came of it: "same", "lost", "changed", "missed"."""
        if self.watched(moment).code is not None:
            return "missed"  # it ended sooner this time
        code = again(self.attacked.words, self.out)
        if code != 0:
            return f"lost: exit code {code}, {self.said().strip()}"
        found = left(self.out)
        if found != self.wanted:
            other = {n for n in found.keys() | self.wanted.keys()
                     if found.get(n) != self.wanted.get(n)}  # fmt: skip
            return f"changed: {', '.join(sorted(other))}"
        return "same"


def spread(moments: int, count: int | None) -> Iterator[int]:
    """Choose `count` of the moments, evenly; all of them without a count."""
    if count is None or count >= moments:
        yield from range(moments)
        return
    yield from sorted({round(k * (moments - 1) / max(1, count - 1)) for k in range(count)})


def flips(folder: Path, count: int, dice: random.Random) -> Counter[str]:
    """Flip a bit of a checkpoint of a cut-off run; what is resumed from must be what was saved."""
    words = ("train", "--method.name", "fsam", "--engine.checkpoint_steps", "1", *QUIET)
    out = folder / "out"
    out.mkdir(parents=True)
    assert child(lambda: run((*words, "--output", "{out}/run"), out))[1] == 0
    checkpoints = out / "run" / "checkpoints"
    files = sorted(checkpoints.glob("*.pt"))[-2:]
    states = [torch.load(file, weights_only=True) for file in files]
    for state in states:
        state.pop("best_step")
    whole, found = [file.read_bytes() for file in files], Counter[str]()
    for number in range(count):
        which = number % 2
        content = bytearray(whole[which])
        directory = content.rindex(b"PK\x01\x02", 0, len(content) - 2000)
        at = dice.randrange(directory if dice.random() < 0.5 else 0, len(content))
        content[at] ^= 1 << dice.randrange(8)
        files[which].write_bytes(content)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                state = Checkpoints(checkpoints).load()
            except Exception as error:
                found[f"error: {type(error).__name__}"] += 1
                continue
            finally:
                files[which].write_bytes(whole[which])
        good = same(state, states[1 - which] if which == 1 else states[1])
        told = (said.getvalue().count("\n") == 1) == (which == 1)
        found["other weights" if not good else "silent" if not told else "same"] += 1
    return found


def main() -> int:
    """Kill all of them, flip bits, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, help="kills in all (default: every moment)")
    parser.add_argument("--flips", type=int, default=5000)
    parser.add_argument("--only", help="attack the commands whose name holds this")
    options = parser.parse_args()
    if not SUPPORTED:
        print("system calls are watched on Linux and x86-64 only")
        return 0
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    warm_up()
    began, wrong, total = time.monotonic(), 0, Counter[str]()
    chosen = {n: c for n, c in COMMANDS.items() if options.only is None or options.only in n}
    each = None if options.sample is None else max(1, options.sample // len(chosen))
    print("| command | moments | kills | lost | changed |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, attacked) in enumerate(chosen.items()):
            target = Target(name, attacked, Path(folder).resolve() / str(number))
            results = Counter[str]()
            for count, moment in enumerate(spread(len(target.moments), each)):
                if count % 25 == 0:
                    print(f"{name}: {count} kills, {dict(results)}", file=sys.stderr, flush=True)
                result = target.kill(moment)
                results[result.partition(":")[0]] += 1
                if result not in ("same", "missed"):
                    print(f"    {name}, {target.moments[moment]} ({moment}): {result}", flush=True)
            kills = sum(results.values()) - results["missed"]
            total.update(results)
            print(f"| {name} | {len(target.moments)} | {kills} | {results['lost']} | "
                  f"{results['changed']} |", flush=True)  # fmt: skip
            wrong += results["lost"] + results["changed"]
            shutil.rmtree(target.folder)
        found = flips(Path(folder).resolve() / "flips", options.flips, random.Random(0))
    kills = sum(total.values()) - total["missed"]
    print(f"| all | | {kills} | {total['lost']} | {total['changed']} |")
    wrong += options.flips - found["same"]
    print(f"\n{options.flips} flipped bits: {dict(found)}\n{time.monotonic() - began:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
