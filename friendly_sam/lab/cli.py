"""The command `fsam`.

Each command is a function that takes its arguments and returns an exit code; heavy modules
are imported by the command that needs them, so `--help` is quick. Mistakes end in one line
on stderr: exit code 2 for what the user can mend, 1 for a run that failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from friendly_sam.lab.errors import LabError, RunError, did_you_mean
from friendly_sam.lab.options import Parser
from friendly_sam.lab.stopping import Stopped


@dataclass(frozen=True)
class Command:
    """A command of `fsam`."""

    summary: str
    run: Callable[[Sequence[str]], int]


def _parser(name: str, description: str, example: str) -> Parser:
    return Parser(
        prog=f"fsam {name}",
        description=description,
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def demo(arguments: Sequence[str]) -> int:
    """`fsam demo`."""
    parser = _parser(
        "demo",
        "SGD, SAM and F-SAM on digits with wrong labels: two minutes, nothing to download.",
        "  fsam demo\n  fsam demo --seeds 10 --radii 0.2 0.4 0.8 1.2",
    )
    parser.add_argument("--output", type=Path, default=Path("runs/demo"), help="folder to write to")
    parser.add_argument("--seeds", type=int, default=5, help="runs a setting (default 5)")
    parser.add_argument("--radii", type=float, nargs="+", default=[0.1, 0.2, 0.4, 0.8], metavar="R")
    parser.add_argument("--epochs", type=int, default=30, help="epochs a run (default 30)")
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    parser.add_argument("--fresh", action="store_true", help="forget the runs of earlier demos")
    options = parser.parse_args(arguments)
    from friendly_sam.lab.demo import demo as run

    run(
        options.output,
        seeds=options.seeds,
        radii=options.radii,
        epochs=options.epochs,
        workers=options.workers,
        fresh=options.fresh,
    )
    return 0


def train(arguments: Sequence[str]) -> int:
    """`fsam train`."""
    from friendly_sam.lab.commands import train as run

    return run(arguments)


def list_(arguments: Sequence[str]) -> int:
    """`fsam list`."""
    from friendly_sam.lab.commands import list_all

    kinds = ("data", "models", "methods", "presets")
    parser = _parser(
        "list",
        "Data sets, networks, methods and presets, a line each.",
        "  fsam list\n  fsam list presets",
    )
    parser.add_argument("kind", nargs="?", choices=kinds, help="only these")
    options = parser.parse_args(arguments)
    return list_all([options.kind] if options.kind else kinds)


def report(arguments: Sequence[str]) -> int:
    """`fsam report`."""
    parser = _parser(
        "report",
        "Curves and a table of any runs, as a page that needs nothing else.",
        "  fsam report runs/digits-mlp-*\n  fsam report runs --output comparison.html",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    parser.add_argument("--output", type=Path, help="the page (default: report.html)")
    options = parser.parse_args(arguments)
    from friendly_sam.lab.files import check_page
    from friendly_sam.lab.report import page
    from friendly_sam.lab.report.console import plain_table
    from friendly_sam.lab.report.reproduction import is_reproduction, write_report
    from friendly_sam.lab.report.runs import find_runs, runs_page

    if len(options.runs) == 1 and is_reproduction(options.runs[0]):
        if options.output is not None:
            raise LabError(f"--output has no meaning here: the page of {options.runs[0]} is in it")
        written, summary = write_report(options.runs[0])
        print(f"{summary}\n\nPage: {written}")
        return 0
    target = options.output or Path("report.html")
    check_page(target)
    content, table = runs_page(find_runs(options.runs))
    print(f"{plain_table(table)}\n\n{content.sections[0].text}")
    paths = page.write(content, target)
    print(f"\nPage: {paths[0]} (pictures beside it: {len(paths) - 1})")
    return 0


def reproduce(arguments: Sequence[str]) -> int:
    """`fsam reproduce`."""
    from friendly_sam.lab.reproduce import reproduce as run

    return run(arguments)


def sharpness(arguments: Sequence[str]) -> int:
    """`fsam sharpness`."""
    from friendly_sam.lab.sharpness_command import sharpness as run

    return run(arguments)


def bench(arguments: Sequence[str]) -> int:
    """`fsam bench`."""
    from friendly_sam.lab.bench.command import bench as run

    return run(arguments)


def find_rho(arguments: Sequence[str]) -> int:
    """`fsam find-rho`."""
    from friendly_sam.lab.find_rho import command

    return command(arguments)


COMMANDS = {
    "demo": Command("see in two minutes what F-SAM does", demo),
    "train": Command("train a network", train),
    "find-rho": Command("try radii half-way, finish the best", find_rho),
    "reproduce": Command("run tables and figures of the paper, and write the page", reproduce),
    "sharpness": Command("see how sharp the minima of runs are", sharpness),
    "report": Command("compare runs: table, curves, page", report),
    "bench": Command("measure what the methods cost, beside other code", bench),
    "list": Command("list data sets, networks, methods and presets", list_),
}


def program() -> NoReturn:
    """Run the command of `sys.argv` and end the process.

    One of several processes leaves without tearing the interpreter down: a gloo thread that
    lets go of a tensor meanwhile aborts a run that is done and written
    (https://github.com/pytorch/pytorch/pull/179291).
    """
    code = main()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; give the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        return _fail("interrupted; what was written so far can be resumed", 130)
    except Stopped:
        return _fail("stopped by SIGTERM, nothing is lost: --resume goes on at the last step", 143)
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
        place = f"{error.filename}: " if error.filename else ""
        mistake = isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError))
        return _fail(f"{place}{error.strerror or error}", 2 if mistake else 1)
    except (RuntimeError, MemoryError) as error:
        return _fail(f"{type(error).__name__}: {error}", 1)


def _dispatch(arguments: Sequence[str]) -> int:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {c.summary}" for name, c in COMMANDS.items())
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            "usage: fsam COMMAND ...\n\nFriendly Sharpness-Aware Minimization: train, compare, "
            f"look.\n\ncommands:\n{listing}\n\n`fsam COMMAND --help` tells more.\n\n"
            "example:\n  fsam train --preset digits-mlp-fsam --method.rho 0.4"
        )
        return 0
    if arguments[0] in ("-V", "--version"):
        from friendly_sam import __version__

        print(__version__)
        return 0
    command = COMMANDS.get(arguments[0])
    if command is None:
        hint = did_you_mean(arguments[0], COMMANDS)
        raise LabError(f"unknown command {arguments[0]!r}{hint}: choose from {', '.join(COMMANDS)}")
    return command.run(arguments[1:])


def _how_to_install(error: ModuleNotFoundError) -> str:
    """Name the extra that the commands need; a missing part of this package is a fault of ours."""
    module = (error.name or "").partition(".")[0]
    if module in ("", "friendly_sam"):
        return str(error)
    return (
        f"{module} is not installed, and the commands need the extra lab: "
        'pip install ".[lab]" in a clone, or pip install "friendly-sam[lab]"'
    )


def _fail(message: str, code: int) -> int:
    """Print one line; with FSAM_DEBUG set, the traceback before it."""
    if os.environ.get("FSAM_DEBUG"):
        traceback.print_exc()
    rank = int(os.environ.get("RANK", "0"))
    if rank and code == 2:
        return code  # all processes of torchrun see the same mistake; one tells
    line = " ".join(message.split()) or "unknown error"
    print(f"fsam: error: {f'[process {rank}] ' if rank else ''}{line}", file=sys.stderr)
    return code
