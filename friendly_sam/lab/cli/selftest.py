"""`fsam selftest`: check the promises on a device and write a text that can be sent back."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from friendly_sam.lab.cli.parser import Parser
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import check_writable, write_atomically

if TYPE_CHECKING:
    import torch

    from friendly_sam.lab.promises.outcome import Check
    from friendly_sam.lab.report.tables import Table

OUTPUT = Path("friendly-sam-selftest.txt")
DESCRIPTION = """\
Check the promises of the optimizers on a device, in about a minute.

Exact restore, resume, the formulas against plain float64 on the CPU, GradScaler, autocast and,
on CUDA, waits of the host, graph capture, memory and several devices; then a short table of what
a step costs. All of it goes into one text file, which names neither the machine nor its user.
The exit code is 0 only if nothing failed.
"""
EXAMPLE = """\
examples:
  fsam selftest --device cuda
  fsam selftest --device cpu --output selftest-cpu.txt --overwrite
"""


def run(arguments: Sequence[str]) -> int:
    """Check, print a line each, write the text; return the exit code."""
    options = parse(arguments)
    device = usable(options.device)
    from friendly_sam.lab.promises.outcome import Verdict, carry_out
    from friendly_sam.lab.promises.record import heading, summary, text
    from friendly_sam.lab.report.tables import plain_table

    print(heading(device) + "\n", flush=True)
    outcomes = []
    for check in checks(device, quick=options.quick):
        outcomes.append(carry_out(check))
        print(outcomes[-1].line(), flush=True)
    table = speed(device, quick=options.quick)
    print(f"\n{plain_table(table)}\n\n{summary(outcomes)}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.output, text(device, outcomes, table))
    print(f"Text: {options.output}")
    return int(any(outcome.verdict is Verdict.FAILED for outcome in outcomes))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; mistakes end here, before any work is done."""
    parser = Parser(
        prog="fsam selftest",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--device", required=True, help="cpu, cuda, cuda:1, mps, xpu, ...")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"file (default {OUTPUT})")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it works")
    options = parser.parse_args(list(arguments))
    if options.output.is_dir():
        raise LabError(f"--output must name a file, such as selftest.txt, not {options.output}")
    check_writable(options.output.absolute().parent)
    if options.output.exists() and not options.overwrite:
        raise LabError(f"{options.output} is there already: --overwrite replaces it")
    return options


def usable(name: str) -> torch.device:
    """Return the device, or refuse one that is unknown or not there."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LabError(f"--device {name} is not a device that torch knows") from error
    if device.type == "meta":
        raise LabError("--device meta has no numbers to check")
    try:
        torch.ones(1, device=device).add_(1).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = str(error).strip().splitlines()[0]
        raise LabError(f"--device {name} cannot be used here: {said}") from error
    return device


def checks(device: torch.device, *, quick: bool) -> Iterator[Check]:
    """Return all checks, in the order in which they run."""
    from friendly_sam.lab.promises import cuda, exact, precision

    yield from exact.checks(device, steps=6 if quick else 40)
    yield from precision.checks(device)
    yield from cuda.checks(device)


def speed(device: torch.device, *, quick: bool) -> Table:
    """Return the table of costs."""
    from friendly_sam.lab.promises.speed import measure_speed

    if quick:
        return measure_speed(device, batch=4, size=8, rounds=3, seconds=1)
    return measure_speed(device, batch=64, size=32, rounds=25, seconds=25)
