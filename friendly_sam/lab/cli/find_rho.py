"""`fsam find-rho`: train each candidate half-way, finish the one that validation prefers.

A radius that is too large shows early, one that is too small does not: it learns as quickly as the
best at first and memorises wrong labels later. So the look comes half-way through training, with
the schedule of the whole run. The others stay as they are and can be resumed. With k candidates
that costs (k + 1) / 2 runs instead of k.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from friendly_sam.lab.cli.parser import Parser, above_zero
from friendly_sam.lab.cli.run_settings import settings
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.report.tables import Table, plain_table
from friendly_sam.lab.training.interrupts import Stopped

RADII = (0.05, 0.1, 0.2, 0.4)


class _Enough(Stopped):
    """The run was stopped by us, not by a signal."""


@dataclass
class _HalfWay:
    """A listener that stops a run after an epoch, whose checkpoint is written by then."""

    epoch_to_stop_after: int

    def step(self, epoch: int, batch: int, batches: int) -> None:
        """Do nothing."""

    def epoch(self, metrics: dict[str, float]) -> None:
        """Stop."""
        if metrics["epoch"] >= self.epoch_to_stop_after:
            raise _Enough


def candidates(config: RunConfig, radii: Sequence[float], folder: Path) -> list[RunConfig]:
    """Return a run for each radius, after checking that the search makes sense."""
    if config.method.name == "base":
        raise LabError("method.name is base, which has no radius: choose from `fsam list methods`")
    if config.data.validation_size == 0:
        raise LabError(
            "data.validation_size is 0: the radius is chosen on validation images, so set some "
            "aside, for example --data.validation_size 500"
        )
    if config.epochs < 2:
        raise LabError(f"epochs must be at least 2 to look half-way, got {config.epochs}")
    if len(set(radii)) < 2 or min(radii) <= 0:
        raise LabError(f"--radii must be two or more different numbers above 0, got {[*radii]}")
    return [
        resolve(
            replace(
                config,
                method=replace(config.method, rho=rho),
                engine=replace(config.engine, checkpoint_epochs=1),
                output=str(folder / f"rho{rho:g}"),
            )
        )
        for rho in sorted(set(radii))
    ]


def find_rho(config: RunConfig, radii: Sequence[float], folder: Path) -> float:
    """Choose a radius and finish its run; both steps go on where they were cut off."""
    from friendly_sam.lab.training.trainer import train

    runs = candidates(config, radii, folder)
    half = max(1, config.epochs // 2)
    scores: dict[float, float] = {}
    for candidate in runs:
        rho = float(candidate.method.rho or 0.0)
        with contextlib.suppress(_Enough):
            train(candidate, resume=True, listener=_HalfWay(half))
        found = read_run(Path(str(candidate.output)))
        scores[rho] = found.series("validation_accuracy")[half - 1]
        print(f"rho {rho:g}: validation {scores[rho]:.2f} % after {half} epochs", flush=True)
    best = max(scores, key=lambda rho: scores[rho])
    chosen = next(run for run in runs if run.method.rho == best)
    print(f"\nfinishing rho {best:g} in {chosen.output}", flush=True)
    final = read_run(train(chosen, resume=True))
    lines = [
        [f"{rho:g}", f"{score:.2f}", f"{final.final('test_accuracy'):.2f}" if rho == best else ""]
        for rho, score in scores.items()
    ]
    header = ["radius", f"validation after {half} epochs, %", "test at the end, %"]
    print(plain_table(Table(header=header, rows=lines)))
    if best in (min(scores), max(scores)):
        print(f"\n{best:g} is at the edge of what was tried: widen --radii on that side.")
    return best


def run(arguments: Sequence[str]) -> int:
    """`fsam find-rho`."""
    first = Parser(prog="fsam find-rho", add_help=False, allow_abbrev=False)
    first.add_argument("--radii", type=above_zero, nargs="+", default=RADII)
    options, rest = first.parse_known_args(list(arguments))
    config = settings(
        rest,
        own=("--radii",),
        prog="fsam find-rho",
        usage="fsam find-rho [--preset NAME] [--config FILE] [--radii R ...] [--SETTING VALUE ...]",
        description=f"{(__doc__ or '').partition(chr(10))[2].strip()}\n\n"
        f"--radii R ... names the candidates (default: {' '.join(map(str, RADII))}).",
        epilog="example:\n  fsam find-rho --preset digits-mlp-fsam --data.train_size 800 "
        "--data.validation_size 200\n"
        "  fsam find-rho --config mine.yaml --radii 0.1 0.2 0.4 0.8 --output runs/radius",
    )
    find_rho(config, options.radii, Path(config.output or "runs/find-rho"))
    return 0
