"""`fsam bench`: read the command line, measure, print and write."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from friendly_sam.lab.cli.parser import Parser, whole
from friendly_sam.lab.config.bounds import MOST_THREADS
from friendly_sam.lab.errors import LabError

PARTS = ("arithmetic", "step", "memory", "epoch", "scaling", "device")
NETWORKS = ("mlp", "resnet18", "vit_s", "vit_b")
EXAMPLE = """\
examples:
  fsam bench
  fsam bench arithmetic --networks resnet18 vit_s --threads 2
  fsam bench step --rounds 51 --output bench
  fsam bench --quick
"""
DESCRIPTION = """\
Measure what the methods cost, beside everything they compete with.

  arithmetic  ascent and restore, gradients given, on the shapes of networks
  step        a whole training step of ResNet-8
  memory      peak memory beyond the base optimizer, in processes of their own
  epoch       an epoch of the lab against a bare loop, and where its time goes
  scaling     cost against parameters, tensors, processes and steps
  device      what a step asks of an accelerator, counted without one

Contenders take turns in one process; a time is the median over rounds with its quartiles. With
one thread processor time is measured, with several wall time, for which the machine should be
quiet. pytorch_optimizer, jax and optax are measured where they are installed. Parts that
--output holds already stay there until they are measured again.
"""


def run(arguments: Sequence[str]) -> int:
    """Measure, print the tables, write JSON, page and figures; return the exit code."""
    options = parse(arguments)
    from friendly_sam.lab.files import check_writable

    check_writable(options.output.absolute())
    from friendly_sam.lab.bench import report

    parts = report.read(options.output)
    wanted = PARTS if options.part == "all" else [options.part]
    fresh: dict[str, Any] = {}
    paths = []
    for name in wanted:
        found = measure(name, options, lambda line: print(line, flush=True))
        found["quick"] = options.quick
        parts = report.add(parts, name, found)
        fresh |= report.add({}, name, found)
        paths = report.write(parts, options.output)
    print(f"\n{report.text(fresh)}\n")
    print(f"Page: {paths[1]}\nJSON: {paths[0]}")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; mistakes end here, before any work is done."""
    parser = Parser(
        prog="fsam bench",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("part", nargs="?", choices=(*PARTS, "all"), default="all")
    parser.add_argument(
        "--networks", nargs="+", choices=NETWORKS, metavar="NETWORK",
        help=f"for arithmetic and device: {', '.join(NETWORKS)} (default: all; device: two)",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=whole(1, 100_000), help="rounds that are kept (default 9 to 25)"
    )
    parser.add_argument(
        "--threads", type=whole(1, MOST_THREADS),
        help="threads (default: all cores for the arithmetic, 1 for the rest)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, default=Path("bench"), help="folder to write to (default bench)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    options = parser.parse_args(list(arguments))
    if options.networks and options.part not in ("arithmetic", "device", "all"):
        raise LabError(f"--networks is for arithmetic and device, not for {options.part}")
    return options


def measure(
    name: str, options: argparse.Namespace, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Measure one part."""
    from friendly_sam.lab.runner.pool import cores

    quick = options.quick
    threads = options.threads or 1

    def rounds(usual: int) -> int:
        return options.rounds or (3 if quick else usual)

    if name == "arithmetic":
        from friendly_sam.lab.bench.arithmetic import measure_arithmetic

        networks = options.networks or (("mlp",) if quick else NETWORKS)
        return measure_arithmetic(
            networks, rounds=rounds(21), threads=options.threads or cores(), progress=progress,
        )  # fmt: skip
    if name == "step":
        from friendly_sam.lab.bench.step import measure_step

        tiny: dict[str, Any] = {"batch": 16, "size": 8} if quick else {}
        return measure_step(rounds=rounds(25), threads=threads, progress=progress, **tiny)
    if name == "memory":
        from friendly_sam.lab.bench.memory import measure_memory

        few = ["SGD", "SAM", "F-SAM"] if quick else None
        return measure_memory(megabytes=100 if quick else 200, methods=few, progress=progress)
    if name == "epoch":
        from friendly_sam.lab.bench.epoch import measure_epoch

        small: dict[str, Any] = {"network": "mlp", "images": 128, "size": 8, "batch": 64}
        return measure_epoch(
            rounds=rounds(15), threads=threads, progress=progress, **(small if quick else {})
        )
    if name == "device":
        from friendly_sam.lab.bench import device

        counted = options.networks or (("mlp",) if quick else device.NETWORKS)
        return device.measure_device(counted, progress)
    return _scaling(quick, rounds, threads, progress)


def _scaling(
    quick: bool, rounds: Callable[[int], int], threads: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    from friendly_sam.lab.bench.growth import measure_growth
    from friendly_sam.lab.bench.processes import measure_processes
    from friendly_sam.lab.bench.scaling import PARAMETERS, TENSORS, measure_sizes

    tiny: dict[str, Any] = {"batch": 4, "size": 8} if quick else {}
    return {
        "sizes": measure_sizes(
            rounds=rounds(9),
            threads=threads,
            parameters=(10_000, 100_000) if quick else PARAMETERS,
            tensors=(10, 100) if quick else TENSORS,
            progress=progress,
        ),
        "processes": measure_processes(rounds=rounds(15), progress=progress, **tiny),
        "growth": measure_growth(
            early=100 if quick else 1_000, late=300 if quick else 10_000, progress=progress
        ),
    }
