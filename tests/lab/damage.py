"""Files of runs, damaged: a run then ends as if nothing had happened, or is refused in one line."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from collections import Counter
from pathlib import Path

import torch
from attacked import QUIET, give, left, said_file
from bad_values import damaged
from fork_server import forked
from lab_runs import same

from friendly_sam.lab.training.checkpoints import Checkpoints

WORDS = ("train", "--method.name", "fsam", "--engine.checkpoint_steps", "1", *QUIET,
         "--output", "run")  # fmt: skip
RIGHT = "resumed from what was saved"


def flip_bits(folder: Path, count: int) -> Counter[str]:
    """Flip a bit of a checkpoint; what is resumed from must be what was saved, and told.

    Half of them are flipped in the zip directory at its end, which `torch.load` trusts.
    """
    dice, out = random.Random(0), folder / "out"
    out.mkdir(parents=True)
    assert forked(lambda: give(WORDS, out)) == 0
    checkpoints = out / "run" / "checkpoints"
    files = sorted(checkpoints.glob("*.pt"))[-2:]
    states = [torch.load(file, weights_only=True) for file in files]
    for state in states:
        state.pop("best_step")
    whole, found = [file.read_bytes() for file in files], Counter[str]()
    for number in range(count):
        newest = number % 2
        content = bytearray(whole[newest])
        directory = content.rindex(b"PK\x01\x02", 0, len(content) - 2000)
        at = dice.randrange(directory if dice.random() < 0.5 else 0, len(content))
        content[at] ^= 1 << dice.randrange(8)
        files[newest].write_bytes(content)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                state = Checkpoints(checkpoints).load()
            except Exception as error:
                found[f"wrong: {type(error).__name__}"] += 1
                continue
            finally:
                files[newest].write_bytes(whole[newest])
        good = same(state, states[0] if newest else states[1])
        told = (said.getvalue().count("\n") == 1) == bool(newest)
        found["wrong: other weights" if not good else RIGHT if told else "wrong: in silence"] += 1
    return found


def damage_files(folder: Path, count: int) -> Counter[str]:
    """Damage or delete any file of a run that is finished or was cut off, then resume it."""
    dice, out, found = random.Random(0), folder / "out", Counter[str]()
    out.mkdir(parents=True)
    assert forked(lambda: give(WORDS, out)) == 0
    wanted = left(out)
    shutil.copytree(out, folder / "finished")
    shutil.copytree(out, folder / "cut")
    cut_off(folder / "cut" / "run")
    for _ in range(count):
        shutil.rmtree(out)
        shutil.copytree(folder / dice.choice(("finished", "cut")), out)
        path = dice.choice([p for p in sorted((out / "run").rglob("*")) if p.is_file()])
        if dice.random() < 0.2:
            path.unlink()
        else:
            path.write_bytes(damaged(path.read_bytes(), dice))
        code = forked(lambda: _resumed(out))
        said, told = said_file(out).read_text(), _told_file(out).read_text()
        if code not in (0, 1, 2) or said.count("\n") > 1 or "Traceback" in said:
            kind = f"wrong: exit code {code}, {said!r}"
        elif code:
            kind = "refused in one line"
        else:
            other = [n for n, v in left(out).items() if v != wanted.get(n)]
            kind = f"wrong: other {', '.join(other)}" if other else "ended as if left alone"
            if other and "the best checkpoint" in told and not path.name.endswith(".jsonl"):
                kind = "went on without its best, told in one line"
        found[kind] += 1
        if kind.startswith("wrong"):
            print(f"    {path.relative_to(out)}: {kind}", flush=True)
    return found


def _resumed(out: Path) -> int:
    with _told_file(out).open("w") as told:
        return give(("train", "--resume", "--output", "run"), out, told)


def _told_file(out: Path) -> Path:
    return out.parent / f"{out.name}.stdout"


def cut_off(run: Path) -> None:
    """Make a finished run one that was cut off at the checkpoint before its last."""
    newest = sorted((run / "checkpoints").glob("*.pt"))[-1]
    newest.unlink()
    (run / "status.json").write_text('{"state": "running", "time": "now"}\n')
