"""`fsam demo`: label noise on embedded digits, SGD, SAM and F-SAM, best against best.

Each method has the learning rate, the weight decay and the radius that were chosen for it on
validation images. Beside that, the paper's figure 3 in small: SAM and F-SAM over the radius at one
setting of everything else. All runs of one seed share images, wrong labels, initial weights and
order, so methods are compared seed by seed.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from friendly_sam.lab.cli.demo_folder import claim
from friendly_sam.lab.cli.parser import (
    MOST_WORKERS,
    above_zero,
    command_parser,
    whole,
)
from friendly_sam.lab.config.bounds import MOST_SEEDS
from friendly_sam.lab.config.presets import preset
from friendly_sam.lab.config.schema import EngineConfig, RunConfig
from friendly_sam.lab.config.settings import changed
from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.plotting.panels import Panel, Series
from friendly_sam.lab.records.run import is_run, read_run
from friendly_sam.lab.report import page
from friendly_sam.lab.report.page import Page, Section
from friendly_sam.lab.report.tables import Table, plain_table
from friendly_sam.lab.runner.pool import check_workers, run_all
from friendly_sam.lab.statistics import Difference, paired_difference, summarize

RADII = (0.1, 0.2, 0.4, 0.8)
EPOCHS = 30
"""Of every run, and of the searches that chose `TUNED`."""
ONE_SETTING = {"base.lr": 0.05, "base.weight_decay": 5e-4}
"""Of the runs over the radius: the paper's learning rate."""
TUNED: dict[str, dict[str, float]] = {
    "sgd": {"base.lr": 0.014, "base.weight_decay": 0.00059},
    "sam": {"base.lr": 0.03, "base.weight_decay": 0.0028, "method.rho": 0.17},
    "fsam": {
        "base.lr": 0.026,
        "base.weight_decay": 0.0009,
        "method.rho": 0.25,
        "method.decay": 0.9,
    },
}
"""What validation chose for each, with 10 trials: `docs/results/mini/table1.json`."""
LABELS = {"sgd": "SGD", "sam": "SAM", "fsam": "F-SAM"}
Scores = dict[int, float]
"""Test accuracy by seed."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """Final test accuracy of every run, by seed."""

    tuned: dict[str, Scores]
    """Each method at the settings chosen for it."""
    sam: dict[float, Scores]
    """By radius, at one setting of everything else."""
    fsam: dict[float, Scores]
    failed: tuple[str, ...] = ()


def demo(
    output: Path,
    *,
    seeds: int = 5,
    radii: Sequence[float] = RADII,
    epochs: int = EPOCHS,
    workers: int | None = None,
    fresh: bool = False,
) -> Results:
    """Run the demo, print its table and its sentence, write figure and page."""
    check_workers(workers)
    runs = {key: _config(output, *key, epochs=epochs) for key in _keys(seeds, radii)}
    done = claim(output, list(runs.values()), fresh)
    words = (
        f"{len(runs)} small trainings on 1,000 handwritten digits, 60 % of whose labels are random:"
        " SGD, SAM and F-SAM, each tuned, then SAM and F-SAM at radius "
        f"{', '.join(f'{r:g}' for r in radii)}; {counted(seeds, 'seed')}."
        + (f" {done} are there already (--fresh starts again)." if done else "")
    )
    print(textwrap.fill(words, 100), flush=True)
    outcomes = run_all(list(runs.values()), workers=workers, verbose=False)
    failed = tuple(f"{o.folder.name}: {o.error}" for o in outcomes if o.error is not None)
    results = _collect(runs, failed)
    table, sentences = _table(results), [best_with_best(results, epochs), verdict(results)]
    print(f"\nTest accuracy in %, mean ± standard deviation over seeds\n\n{plain_table(table)}\n")
    for line in failed:
        print(f"failed: {line}")
    print("\n\n".join(textwrap.fill(sentence, 100) for sentence in sentences))
    report = _page(table, _chart(results), sentences, seeds, epochs)
    paths = page.write(report, output / "demo.html")
    print(f"\nFigure: {paths[1]}\nPage:   {paths[0]}")
    if failed:
        share = f"{len(failed)} of {counted(len(runs), 'run')}"
        raise RunError(f"{share} failed, the first: {failed[0]}")
    return results


def run(arguments: Sequence[str]) -> int:
    """Run `fsam demo`."""
    parser = command_parser(
        "demo",
        "SGD, SAM and F-SAM on digits with wrong labels: two minutes, nothing to download.",
        "  fsam demo\n  fsam demo --seeds 10 --radii 0.2 0.4 0.8 1.2",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/demo"),
        help="folder to write to (default runs/demo)",
    )
    parser.add_argument(
        "--seeds", type=whole(1, MOST_SEEDS), default=5, help="runs per setting (default 5)"
    )
    parser.add_argument(
        "--radii",
        type=above_zero,
        nargs="+",
        default=RADII,
        metavar="R",
        help=f"radii of SAM and F-SAM (default {' '.join(map(str, RADII))})",
    )
    parser.add_argument(
        "--epochs",
        type=whole(1, 1_000_000),
        default=EPOCHS,
        help=f"epochs per run (default {EPOCHS})",
    )
    parser.add_argument(
        "--workers", type=whole(1, MOST_WORKERS), help="processes (default: one per core)"
    )
    parser.add_argument("--fresh", action="store_true", help="delete the runs of earlier demos")
    demo(**vars(parser.parse_args(arguments)))
    return 0


Key = tuple[str, float | None, int]
"""Method, radius (`None`: all settings are those chosen for it) and seed."""


def _keys(seeds: int, radii: Sequence[float]) -> list[Key]:
    """List method, radius and seed of every run."""
    if seeds < 1 or not radii or min(radii) <= 0:
        raise LabError(f"the demo needs seeds >= 1 and radii > 0, got {seeds} and {list(radii)}")
    keys: list[Key] = []
    for seed in range(seeds):
        keys += [(method, None, seed) for method in TUNED]
        keys += [(method, radius, seed) for radius in radii for method in ("sam", "fsam")]
    return keys


def _config(
    output: Path, method: str, radius: float | None, seed: int, *, epochs: int
) -> RunConfig:
    """Return one run; so short that a checkpoint before its end would cost more than it saves."""
    config = preset(f"digits-mlp-{method}")
    name = "-".join([method, f"rho{radius:g}" if radius else "tuned", f"seed{seed}"])
    own = {**ONE_SETTING, "method.rho": radius} if radius else TUNED[method]
    return dataclasses.replace(
        changed(config, own),
        engine=EngineConfig(
            device="cpu", threads=1, tensorboard=False, checkpoint_epochs=0, keep_best=False
        ),
        epochs=epochs,
        seed=seed,
        output=str(output / "runs" / name),
    )


def _words(settings: Mapping[str, float]) -> str:
    names = {"base.lr": "learning rate", "base.weight_decay": "weight decay", "method.rho": "ρ"}
    return ", ".join(f"{names.get(n, 'decay')} {value:g}" for n, value in settings.items())


def _collect(runs: dict[Key, RunConfig], failed: tuple[str, ...]) -> Results:
    results = Results(tuned={}, sam={}, fsam={}, failed=failed)
    for (method, radius, seed), config in runs.items():
        folder = Path(str(config.output))
        if not is_run(folder) or not (run := read_run(folder)).finished:
            continue
        accuracy = run.final("test_accuracy")
        if radius is None:
            results.tuned.setdefault(method, {})[seed] = accuracy
        else:
            getattr(results, method).setdefault(radius, {})[seed] = accuracy
    if not (results.sam and results.fsam):
        raise RunError(f"no run finished: {failed[0] if failed else 'unknown reason'}")
    return results


def _show(scores: Scores | None) -> str:
    return "-" if not scores else str(summarize(list(scores.values())))


def _table(results: Results) -> Table:
    tuned = results.tuned
    lead = paired_difference(tuned.get("fsam", {}), tuned.get("sam", {}))
    rows = [["tuned", *[_show(tuned.get(m)) for m in TUNED], str(lead) if lead else ""]]
    for radius in sorted(results.sam.keys() | results.fsam.keys()):
        sam, fsam = results.sam.get(radius, {}), results.fsam.get(radius, {})
        difference = paired_difference(fsam, sam)
        rows.append(
            [f"ρ {radius:g}", "", _show(sam), _show(fsam), str(difference) if difference else ""]
        )
    return Table(header=["settings", "SGD", "SAM", "F-SAM", "F-SAM - SAM, 95 %"], rows=rows)


def best_with_best(results: Results, epochs: int = EPOCHS) -> str:
    """Say in one sentence how the methods stand when each has settings chosen for it."""
    means = ", ".join(f"{LABELS[m]} {_show(results.tuned.get(m))}" for m in TUNED)
    chosen = "that validation images chose for it"
    if epochs != EPOCHS:
        chosen += f" at {counted(EPOCHS, 'epoch')}, which may not be the best at {epochs}"
    text = f"Best against best, each with settings {chosen}: {means}"
    base, found = results.tuned.get("sgd", {}), []
    for method in ("sam", "fsam"):
        lead = paired_difference(results.tuned.get(method, {}), base)
        if lead is not None:
            clear = "" if lead.holds else ", not clear of 0"
            reach = f"95 % interval {lead.low:+.1f} to {lead.high:+.1f}{clear}"
            found.append(f"{LABELS[method]} - SGD {lead.mean:+.1f} points ({reach})")
    return f"{text}; paired by seed, {', '.join(found)}." if found else f"{text}."


def verdict(results: Results) -> str:
    """Say in one sentence what was seen at the largest radius, whoever wins."""
    radius = max(results.sam.keys() & results.fsam.keys(), default=None)
    if radius is None:
        return "No radius has runs of both methods, so nothing can be compared."
    sam, fsam = results.sam[radius], results.fsam[radius]
    means = (
        f"How robust they are to the radius, at one setting (learning rate "
        f"{ONE_SETTING['base.lr']:g}): at the largest, {radius:g}, F-SAM reaches {_show(fsam)} "
        f"and SAM {_show(sam)}"
    )
    difference = paired_difference(fsam, sam)
    if difference is None:
        return f"{means}; with one seed that says nothing about chance."
    return f"{means}; paired by seed, {_judge(difference)}."


def _judge(difference: Difference) -> str:
    low, high = sorted((abs(difference.low), abs(difference.high)))
    reach = f"95 % interval {low:.1f} to {high:.1f}"
    if not difference.holds:
        reach = f"95 % interval {difference.low:+.1f} to {difference.high:+.1f}"
        return (
            f"the difference of {difference.mean:+.1f} points is not clear of 0 with "
            f"{counted(difference.n, 'seed')} ({reach})"
        )
    if difference.mean > 0:
        return f"F-SAM is ahead by {difference.mean:.1f} points ({reach})"
    return f"F-SAM does not win here: SAM is ahead by {-difference.mean:.1f} points ({reach})"


def _chart(results: Results) -> Panel:
    radii = sorted(results.sam.keys() | results.fsam.keys())
    series = []
    if results.tuned.get("sgd"):
        sgd = summarize(list(results.tuned["sgd"].values()))
        error = [sgd.std] * len(radii) if sgd.n > 1 else None
        series.append(
            Series(label="SGD", x=radii, y=[sgd.mean] * len(radii), error=error, level=True)
        )
    for name, scores in (("SAM", results.sam), ("F-SAM", results.fsam)):
        points = [(radius, summarize(list(scores[radius].values()))) for radius in sorted(scores)]
        several = all(point.n > 1 for _, point in points)
        series.append(
            Series(
                label=name,
                x=[radius for radius, _ in points],
                y=[point.mean for _, point in points],
                error=[point.std for _, point in points] if several else None,
            )
        )
    return Panel(
        title="Radius, at one learning rate (SGD tuned)",
        x_label="perturbation radius ρ",
        y_label="test accuracy, %",
        series=series,
        log_x=True,
        ceiling=100,
        description="Test accuracy against radius for SGD, SAM and F-SAM; values in the table.",
    )


def _page(table: Table, chart: Panel, sentences: Sequence[str], seeds: int, epochs: int) -> Page:
    setting = (
        "scikit-learn's handwritten digits, 1,000 for training with 60 % of the labels drawn "
        "anew from all classes, the rest for the test; a network of two hidden layers of 256; "
        f"{counted(epochs, 'epoch')} of SGD with momentum 0.9 and a cosine schedule, batches of "
        "64. Tuned: "
        + "; ".join(f"{LABELS[m]} {_words(own)}" for m, own in TUNED.items())
        + f", chosen with 10 trials each. Over the radius: {_words(ONE_SETTING)} for both, F-SAM "
        "with decay 0.9. The accuracy is that of the last epoch."
    )
    return Page(
        title="SGD, SAM and F-SAM, best against best and over the radius",
        lead=sentences[0],
        sections=[
            Section(title="Robustness to the radius", chart=chart, text=sentences[1]),
            Section(title="The same in numbers", table=table),
            Section(title="Setting", text=setting),
        ],
        footer=f"Mean ± sample standard deviation over {counted(seeds, 'seed')}; differences are "
        "paired by "
        "seed, with the 95 % t-interval. Made by fsam demo.",
    )
