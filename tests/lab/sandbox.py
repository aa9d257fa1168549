"""One bad input: a command in a process of its own, and what must hold however it ends."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

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


def attempt(place: Path, arguments: list[str]) -> Ending:
    """Run a command in `place/work`; `place/outside` must stay as it is.

    The fork of a process that has torch already costs milliseconds. This one must never train:
    autograd does not survive a fork.
    """
    outside, said = place / "outside", place / "said"
    before = listing(outside)
    process = os.fork()
    if process == 0:
        _child(place / "work", said, outside, arguments)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    text = said.read_text(errors="replace")
    return Ending(code, text, _wrong(code, text, before == listing(outside)))


def _child(work: Path, said: Path, home: Path, arguments: list[str]) -> None:
    code = 70
    try:
        os.chdir(work)
        os.environ["HOME"] = str(home)
        error = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(error, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(WAITING)
        try:
            code = main(arguments)
        except SystemExit as stop:  # argparse, for --help
            code = int(stop.code or 0)
    except BaseException as error:
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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


def fresh(place: Path) -> Path:
    """Empty the place of an input."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "work").mkdir(parents=True)
    (place / "outside").mkdir()
    (place / "outside" / ".bashrc").write_text("# mine\n")
    return place
