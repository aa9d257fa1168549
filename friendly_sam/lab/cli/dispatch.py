"""The command `fsam`.

Each command is a module of this package with `run(arguments)`, which returns an exit code. It is
imported when it is called for, so `--help` is quick. Mistakes end in one line
on stderr: exit code 2 for what the user can mend, 1 for a run that failed.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab import torchrun
from friendly_sam.lab.errors import LabError, RunError, did_you_mean
from friendly_sam.lab.terminal import printable_output
from friendly_sam.lab.training.interrupts import Stopped
from friendly_sam.lab.trust import OPTION, trusting

COMMANDS = {
    "demo": "see in two minutes what F-SAM does",
    "train": "train a network",
    "tune": "search for learning rate, weight decay, radius on validation images",
    "reproduce": "run experiments of the paper, and write the page",
    "sharpness": "see how sharp the minima of runs are",
    "report": "compare runs: table, curves, page",
    "bench": "measure what the methods cost, beside other code",
    "selftest": "check the promises on a device, for a text to send back",
    "list": "list data sets, networks, methods and presets",
}
"""Every command with its summary; `run` of the module of that name does it."""
INTERNAL = "internal error"
MENDABLE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
ODD_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
"""With these, what the system refuses for a name or a permission, not for its own state."""
LONGEST_LINE = 1000
"""Characters of an error: a value or a library may bring megabytes."""


def program() -> NoReturn:
    """Run the command of `sys.argv` and end the process.

    One of several processes leaves without tearing the interpreter down: a gloo thread that
    lets go of a tensor meanwhile aborts a run that is done and written
    (https://github.com/pytorch/pytorch/pull/179291).
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (to the end of the process)
    code = main()
    if _several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    with printable_output():
        return _answered(arguments)


def _answered(arguments: Sequence[str]) -> int:
    try:
        torchrun.rank()
        try:
            return _dispatch(arguments)
        finally:
            sys.stdout.flush()  # a reader that has gone is noticed here, not when Python exits
    except KeyboardInterrupt:
        return _say("interrupted; what was written so far can be resumed", 130)
    except Stopped:
        how = "--resume" if arguments[0] == "train" else "the same command"
        return _say(f"stopped by SIGTERM, nothing is lost: {how} goes on at the last step", 143)
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except RunError as error:
        return _fail(str(error), 1)
    except ModuleNotFoundError as error:
        return _fail(_how_to_install(error), 2)
    except (LabError, ValueError, ImportError) as error:
        return _fail(str(error), 2)
    except OSError as error:
        name = error.filename2 or error.filename  # of a rename, the name that was to be taken
        place = f"{name}: " if name else ""
        mendable = isinstance(error, MENDABLE) or error.errno in ODD_NAMES
        return _fail(f"{place}{error.strerror or error}", 2 if mendable else 1)
    except MemoryError as error:
        return _fail(f"out of memory{f': {error}' if str(error) else ''}", 1)
    except RuntimeError as error:
        return _fail(f"{type(error).__name__}: {error}", 1)
    except Exception as error:  # a fault of ours, and still one line
        return _fail(f"{INTERNAL}: {type(error).__name__}: {error} (FSAM_DEBUG=1 shows where)", 1)


def _dispatch(arguments: Sequence[str]) -> int:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            "usage: fsam COMMAND ...\n\nFriendly Sharpness-Aware Minimization: train, compare, "
            f"look.\n\ncommands:\n{listing}\n\n`fsam COMMAND --help` tells more.\n"
            f"{OPTION} lets a network hf:NAME run the code that it brings.\n\n"
            "example:\n  fsam train --preset digits-mlp-fsam --method.rho 0.4"
        )
        return 0
    if arguments[0] in ("-V", "--version"):
        from friendly_sam import __version__

        print(__version__)
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS)
        raise LabError(f"unknown command {name!r}{hint}: choose from {', '.join(COMMANDS)}")
    command = importlib.import_module(f"friendly_sam.lab.cli.{name.replace('-', '_')}")
    rest = [word for word in arguments[1:] if word != OPTION]
    with trusting(len(rest) < len(arguments) - 1):
        return int(command.run(rest))


def _how_to_install(error: ModuleNotFoundError) -> str:
    """Name the extra to install; a missing module of this package is a fault of ours."""
    module = (error.name or "").partition(".")[0]
    if module in ("", "friendly_sam"):
        return str(error)
    return (
        f"{module} is not installed, and the commands need the extra lab: {how_to_install('lab')}"
    )


def _fail(message: str, code: int) -> int:
    """Print one line that says what went wrong."""
    return _say(f"error: {message}", code)


def _say(message: str, code: int) -> int:
    """Print one line; with FSAM_DEBUG set, the traceback before it."""
    if os.environ.get("FSAM_DEBUG"):
        traceback.print_exc()
    rank = torchrun.rank() if _several() else 0
    if rank and code == 2:
        return code  # all processes of torchrun see the same mistake; one tells
    line = " ".join(message.split()) or "unknown error"
    if len(line) > LONGEST_LINE:
        line = f"{line[:LONGEST_LINE]}..."
    print(f"fsam: {f'[process {rank}] ' if rank else ''}{line}", file=sys.stderr)
    return code


def _several() -> bool:
    """Whether `torchrun` started this process, with a rank that makes sense."""
    try:
        return torchrun.rank() >= 0 and torchrun.world_size() > 1
    except LabError:
        return False
