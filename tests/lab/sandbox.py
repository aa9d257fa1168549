"""One bad input: a command in a process of its own, and what must hold however it ends."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import datasets
from fork_server import forked

from friendly_sam.lab.cli import main
from friendly_sam.lab.cli.dispatch import INTERNAL

SECONDS = 20
"""Of the processor, so that a busy machine proves nothing."""
WAITING = 120
"""Seconds after which an input that waits for something counts as a hang."""
BYTES = 4 << 30


@dataclass(frozen=True)
class Ending:
    """How a command ended, and what was wrong about it."""

    code: int
    said: str
    wrong: str | None


def listing(folder: Path) -> dict[str, object]:
    """Everything in a folder, by name: contents of files, targets of links."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = (path.stat().st_size, path.read_bytes()[:100_000])
        else:
            found[name] = None
    return found


def attempt(place: Path, arguments: list[str], *, fresh: bool = False) -> Ending:
    """Run a command in `place/work`; `place/outside` must stay as it is.

    Args:
        place: see `empty`.
        arguments: of the command line.
        fresh: in a Python of its own, as a user does, not in a fork of this one.
    """
    outside, said = place / "outside", place / "said"
    before = listing(outside)
    code = forked(lambda: _confined(place, arguments, fresh))
    text = said.read_text(errors="replace")
    return Ending(code, text, _wrong(code, text, before == listing(outside)))


def _confined(place: Path, arguments: list[str], fresh: bool) -> int:
    """Run a command within limits of time and memory; for a fork."""
    os.chdir(place / "work")
    os.environ |= {"HOME": str(place / "outside"), "HF_DATASETS_CACHE": str(place / "cache")}
    datasets.config.HF_DATASETS_CACHE = place / "cache"
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(WAITING)
    if fresh:
        os.execv(sys.executable, [sys.executable, "-m", "friendly_sam.lab", *arguments])
    try:
        return main(arguments)
    except SystemExit as stop:  # argparse, for --help
        return int(stop.code or 0)


def _wrong(code: int, said: str, same: bool) -> str | None:
    lines = said.splitlines()
    if code in (-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL):
        return "a hang" if code == -signal.SIGALRM else f"took more than {SECONDS} s"
    if code not in (0, 1, 2):
        return f"ended with {code}"
    if "Traceback" in said or INTERNAL in said:
        return "a traceback"
    if len(lines) > 1:
        return f"{len(lines)} lines on stderr"
    if code and not said.startswith("fsam: error: "):
        return "no error was told"
    if any(not (c.isprintable() or c == "\n") for c in said):
        return "control characters on stderr"
    if not same:
        return "something outside of the output folder changed"
    return None


def copied(place: Path, name: str) -> Path:
    """Copy a place, FIFOs and links as they are."""
    subprocess.run(["cp", "-a", str(place), str(place.parent / name)], check=True)
    return place.parent / name


def empty(place: Path) -> Path:
    """Empty the place of an input."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "work").mkdir(parents=True)
    (place / "outside").mkdir()
    (place / "outside" / ".bashrc").write_text("# mine\n")
    return place
