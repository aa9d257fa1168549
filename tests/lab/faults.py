"""Bad days, many of them: `make faults`.

Runs of the lab are killed, stopped and cut off from their disk at random moments and resumed
until they are done; their files are damaged at random places. A run must then end with the bits
of one that was left alone, or be refused in one line. Counts what was tried and what went wrong,
and exits with 1 if anything did.

    python tests/lab/faults.py --count 300 --seed 0
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from lab_runs import final_state, same, tiny_config

from friendly_sam.lab.cli import main as fsam
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.records.environment import environment
from friendly_sam.lab.records.run import read_run, run_state
from friendly_sam.lab.training.interrupts import Stopped
from friendly_sam.lab.training.streams import load_data
from friendly_sam.lab.training.trainer import train

METHODS = ("base", "sam", "fsam", "fasam")


def warm_up() -> None:
    """Import and read what every run needs, so that a fork need not; nothing is trained."""
    load_data(tiny_config(Path("none")))
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    environment()
    from torch.utils.tensorboard.writer import SummaryWriter  # noqa: F401


def child(work: Callable[[], int], *, wait: bool = True) -> tuple[int, int]:
    """Fork, do `work` in the child; give its process id and, when waited for, its exit code.

    A fork of a process that has torch already costs milliseconds. The parent never trains:
    autograd does not survive a fork.
    """
    process = os.fork()
    if process == 0:
        code = 70
        try:
            code = work()
        except Stopped:
            code = 143
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return process, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) if wait else 0


def run(config: RunConfig) -> int:
    """Train, from the last checkpoint where there is one."""
    torch.set_num_threads(1)
    with contextlib.redirect_stderr(io.StringIO()):  # warnings about a damaged checkpoint
        train(config, resume=True)
    return 0


def setting(folder: Path, dice: random.Random) -> RunConfig:
    """Give one of a few runs, small enough to be killed hundreds of times."""
    method = {"name": dice.choice(METHODS)}
    engine = {"checkpoint_steps": dice.choice((0, 1, 3)), "keep_best": dice.random() < 0.5}
    return tiny_config(folder, method=method, engine=engine, epochs=3, data={"train_size": 200})


def metrics(config: RunConfig) -> object:
    """Give what a run wrote an epoch, but for the time it took."""
    run_ = read_run(Path(str(config.output)))
    return [{k: v for k, v in line.items() if k != "seconds"} for line in run_.metrics]


def outcome(config: RunConfig) -> tuple[object, object]:
    """Give what a run ended with: the state of its last step and its metrics."""
    return final_state(config.output), metrics(config)


class Alone:
    """The same runs, left alone, each done once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, tuple[object, object]] = {}

    def __call__(self, config: RunConfig) -> tuple[object, object]:
        name = f"{config.method.name}-{config.seed}"
        if name not in self.known:
            own = tiny_config(
                self.folder / name,
                method={"name": config.method.name},
                epochs=config.epochs,
                data={"train_size": config.data.train_size},
                seed=config.seed,
            )
            assert child(lambda: run(own))[1] == 0
            self.known[name] = outcome(own)
        return self.known[name]


def duration(folder: Path) -> float:
    """How long a run takes here and now."""
    began = time.monotonic()
    child(lambda: run(tiny_config(folder / "clock", epochs=3, data={"train_size": 200})))
    return time.monotonic() - began


def interrupted(
    folder: Path, count: int, dice: random.Random, number: signal.Signals, seen: Counter[str]
) -> None:
    """Send `number` at random moments, resume until done, compare."""
    alone, longest, sent, index = Alone(folder / "alone"), duration(folder), 0, 0
    kind = "kill -9" if number == signal.SIGKILL else number.name
    while sent < count:
        config = setting(folder / f"run{index}", dice)
        index += 1
        for _ in range(40):
            process, _ = child(lambda config=config: run(config), wait=False)  # type: ignore[misc]
            time.sleep(dice.random() * longest)
            os.kill(process, number)
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            if run_state(Path(str(config.output))) == "finished":
                break
            assert code != 0
            sent += 1
        seen[f"{kind}: sent"] = sent
        seen[f"{kind}: runs lost"] += child(lambda config=config: run(config))[1] != 0  # type: ignore[misc]
        seen[f"{kind}: results changed"] += not same(outcome(config), alone(config))
        shutil.rmtree(str(config.output))


def full_disk(folder: Path, count: int, dice: random.Random, seen: Counter[str]) -> None:
    """Let the disk end after a random number of bytes; then resume with room."""
    alone = Alone(folder / "alone")
    for index in range(count):
        config = setting(folder / f"run{index}", dice)

        def cramped(config: RunConfig = config) -> int:
            limit = int(10 ** dice.uniform(1, 6.2))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            error = io.StringIO()
            with contextlib.redirect_stderr(error):
                try:
                    train(config)
                except Exception as failure:
                    return 3 if "\n" in str(failure) else 1
            return 0

        _, code = child(cramped)
        seen["full disk: tried"] += 1
        seen["full disk: run failed in one line"] += code == 1
        seen["full disk: other failure"] += code not in (0, 1)
        seen["full disk: runs lost"] += child(lambda config=config: run(config))[1] != 0  # type: ignore[misc]
        seen["full disk: results changed"] += not same(outcome(config), alone(config))
        shutil.rmtree(str(config.output))


def damage(path: Path, dice: random.Random) -> str:
    """Flip a bit, tear off the end, blank a page, append, or delete."""
    content = bytearray(path.read_bytes())
    how = dice.choice(("flip", "flip", "flip", "truncate", "blank", "append", "delete"))
    at = dice.randrange(len(content)) if content else 0
    if how == "delete":
        path.unlink()
        return how
    if how == "flip" and content:
        content[at] ^= 1 << dice.randrange(8)
    elif how == "truncate":
        del content[at:]
    elif how == "blank":
        content[at : at + 512] = bytes(len(content[at : at + 512]))
    else:
        content += dice.randbytes(9)
    path.write_bytes(content)
    return how


def damaged(folder: Path, count: int, dice: random.Random, seen: Counter[str]) -> None:
    """Damage a file of a run that is finished or was cut off, then resume and report."""
    alone = Alone(folder / "alone")
    config = tiny_config(
        folder / "run", method={"name": "fsam"}, epochs=3, data={"train_size": 200},
        engine={"checkpoint_steps": 3},
    )  # fmt: skip

    class Stop:
        def step(self, epoch: int, batch: int, batches: int) -> None:
            if (epoch, batch) == (3, 1):
                raise KeyboardInterrupt

        def epoch(self, metrics: dict[str, float]) -> None:
            pass

    def cut() -> int:
        torch.set_num_threads(1)
        with contextlib.suppress(KeyboardInterrupt):
            train(config, listener=Stop())
        return 0

    assert child(cut)[1] == 0
    shutil.copytree(folder / "run", folder / "cut")
    assert child(lambda: run(config))[1] == 0
    shutil.copytree(folder / "run", folder / "finished")
    for _ in range(count):
        start = dice.choice(("cut", "finished"))
        shutil.rmtree(folder / "run")
        shutil.copytree(folder / start, folder / "run")
        files = [p for p in sorted((folder / "run").rglob("*")) if p.is_file() and p.stat().st_size]
        broken = dice.choice(files)
        how = damage(broken, dice)
        said = folder / "said"

        def command(said: Path = said) -> int:
            torch.set_num_threads(1)
            with said.open("w") as file, contextlib.redirect_stderr(file):
                with contextlib.redirect_stdout(io.StringIO()):
                    code = fsam(["train", "--resume", "--output", str(folder / "run")])
                    if code == 0:
                        page = str(folder / "page.html")
                        code = fsam(["report", str(folder / "run"), "--output", page])
            return code

        _, code = child(command)
        lines = said.read_text().splitlines()
        errors = [line for line in lines if line.startswith("fsam: error: ")]
        seen["damage: tried"] += 1
        seen["damage: tracebacks or silence"] += code != 0 and (
            len(errors) != 1 or any("Traceback" in line for line in lines)
        )
        if code != 0:
            seen["damage: refused in one line"] += 1
            continue
        seen["damage: went on"] += 1
        changed = not same(outcome(config), alone(config))
        seen["damage: results changed"] += changed
        if changed:
            print(f"changed after damage ({how}) to {broken.name} of a run that was {start}")


def main() -> int:
    """Try all of it, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=300, help="kills; the others follow from it")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warm_up()
    dice, seen, began = random.Random(options.seed), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        interrupted(folder / "kill", options.count, dice, signal.SIGKILL, seen)
        interrupted(folder / "term", options.count // 3, dice, signal.SIGTERM, seen)
        full_disk(folder / "disk", options.count // 3, dice, seen)
        damaged(folder / "damage", options.count, dice, seen)
    for name, number in seen.items():
        print(f"{name:40}{number:6}")
    print(f"{time.monotonic() - began:.0f} s, seed {options.seed}")
    wrong = ("lost", "changed", "other", "tracebacks")
    return int(any(number for name, number in seen.items() if any(word in name for word in wrong)))


if __name__ == "__main__":
    sys.exit(main())
