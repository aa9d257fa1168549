"""`fsam reproduce`: run experiments of the paper, then write the page that shows them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from friendly_sam.lab.cli.parser import MOST_WORKERS, Parser, whole
from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.paper.experiments import EXPERIMENTS, SCALES, Experiment, Scale, experiment
from friendly_sam.lab.paper.plan import Plan, estimate, plan
from friendly_sam.lab.paper.reproduction_folder import claim_folder, read_requests, write_requests
from friendly_sam.lab.paper.tuning import SEARCH_SEEDS, is_tuned, search, settled
from friendly_sam.lab.runner.pool import cores, run_all

_DESCRIPTION = """\
Reproduce tables and figures of the paper: do their runs, then write one page that sets what
was measured beside what the paper prints.

Every method is tuned alike: the same number of trials, chosen on validation images, then fresh
seeds.

Scales: mini (embedded digits, an hour or two), small (1,000 images of CIFAR, hours on a CPU; needs
--data-root or the hub), medium (5,000 images of CIFAR-10, hours), real (a pretrained network on
photographs, hours; needs the extra pretrained) and paper (the published recipes, for GPUs).
Runs that are finished are not done again; what was cut off goes on.
"""

_EXAMPLE = """\
examples:
  fsam reproduce --list
  fsam reproduce figure3
  fsam reproduce all --scale mini
  fsam reproduce table1 table6 --scale small --data-root ~/data
  fsam reproduce table1 --scale paper --cluster slurm --slurm partition=gpu gpus_per_node=1
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked for."""

    experiments: tuple[Experiment, ...]
    scale: Scale = "mini"
    output: Path = Path("runs/reproduce")
    data_root: Path | None = None
    seeds: int | None = None
    workers: int | None = None
    report_only: bool = False
    cluster: str | None = None
    slurm: tuple[str, ...] = ()
    settings: str = ""
    """Those of the command line that decide what is run, for the page."""

    @property
    def folder(self) -> Path:
        """Return the folder of the scale."""
        return self.output / self.scale


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        prog="fsam reproduce",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "experiments", nargs="*", metavar="EXPERIMENT", help="one of --list, or `all`"
    )
    parser.add_argument("--list", action="store_true", help="show experiments, runs and times")
    parser.add_argument(
        "--scale", default="mini", help=f"one of {', '.join(SCALES)} (default mini)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/reproduce"),
        help="folder of runs and page (default runs/reproduce)",
    )
    parser.add_argument("--data-root", type=Path, help="folder with cifar10/, cifar100/, ...")
    parser.add_argument(
        "--seeds",
        type=whole(1, SEARCH_SEEDS[0]),  # those of the search lie above
        help="runs per setting (default: the scale's own)",
    )
    parser.add_argument(
        "--workers", type=whole(1, MOST_WORKERS), help="processes (default: one per core)"
    )
    parser.add_argument("--report-only", action="store_true", help="no runs: write the page")
    parser.add_argument("--cluster", choices=("slurm", "local"), help="submit runs with submitit")
    parser.add_argument(
        "--slurm", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the jobs"
    )
    given = parser.parse_args(list(arguments))
    asked = [experiment(name) for name in dict.fromkeys(given.experiments) if name != "all"]
    if given.list:
        return show(given.scale, given.workers)
    if not given.experiments:
        raise LabError(
            "name at least one experiment, or `all` (`fsam reproduce --list` shows them)"
        )
    if given.slurm and given.cluster is None:
        raise LabError("--slurm needs --cluster slurm")
    if given.data_root is not None and not given.data_root.is_dir():
        raise LabError(f"--data-root {given.data_root} is not a folder")
    scale = scale_of(given.scale)
    if "all" in given.experiments:
        asked = [found for found in EXPERIMENTS.values() if scale in found.mapping]
    words = ["--scale", given.scale]
    words += ["--seeds", str(given.seeds)] if given.seeds else []
    words += ["--data-root", "DATA"] if given.data_root else []
    options = Options(
        experiments=tuple(has_scale(found, scale) for found in asked),
        scale=scale,
        output=given.output,
        data_root=given.data_root,
        seeds=given.seeds,
        workers=given.workers,
        report_only=given.report_only,
        cluster=given.cluster,
        slurm=tuple(given.slurm),
        settings=" ".join(words),
    )
    return reproduce(options)


def scale_of(name: str) -> Scale:
    """Check the name of a scale."""
    if name not in SCALES:
        raise LabError(f"unknown scale {name!r}: choose from {', '.join(SCALES)}")
    return name


def has_scale(found: Experiment, scale: Scale) -> Experiment:
    """Refuse an experiment that has no runs at a scale."""
    if scale not in found.mapping:
        having = ", ".join(name for name, other in EXPERIMENTS.items() if scale in other.mapping)
        raise LabError(f"{found.name} has no runs at scale {scale}; those that have: {having}")
    return found


def reproduce(options: Options) -> int:
    """Do the runs, then write the page; failed runs are reported at the end."""
    runs, failed = options.folder / "runs", []
    if not options.report_only:
        _look_for_inputs(options)
    claim_folder(options.folder)
    _remember(options)
    if not options.report_only:
        failed += _search(options)
    found = tuple(settled(entry, options.scale, runs) for entry in options.experiments)
    options = replace(options, experiments=found)
    work = plan(found, options.scale, runs, data_root=options.data_root, seeds=options.seeds)
    failed += work.damaged
    if not options.report_only:
        failed += _do(options, work)
        failed += _measure(options)
    from friendly_sam.lab.paper.chapters.write import write_report

    page, summary = write_report(options.folder)
    print(f"\n{summary}\n\nPage: {page}")
    if failed:
        share = f"{len(failed)} of {counted(len(work), 'run')}"
        raise RunError(f"{share} failed, the first: {failed[0]}")
    return 0


def _look_for_inputs(options: Options) -> None:
    """Find the data and the networks of all that is to be run, before the first run."""
    from friendly_sam.lab.paper.inputs import look_for_inputs

    runs, scale, root = options.folder / "runs", options.scale, options.data_root
    tuned = [entry for entry in options.experiments if is_tuned(entry, scale)]
    searches = plan([search(entry, scale, runs) for entry in tuned], scale, runs, data_root=root)
    others = plan(
        [settled(entry, scale, runs) for entry in options.experiments],
        scale,
        runs,
        data_root=root,
        seeds=options.seeds,
    )
    look_for_inputs([*searches.first, *searches.then, *others.first, *others.then])


def _search(options: Options) -> list[str]:
    """Do the trials of the experiments that tune; a run that diverges is a result."""
    runs, damaged = options.folder / "runs", list[str]()
    for _ in ("over the whole space", "around the best"):
        tuned = [
            search(entry, options.scale, runs)
            for entry in options.experiments
            if is_tuned(entry, options.scale)
        ]
        if tuned:
            work = plan(tuned, options.scale, runs, data_root=options.data_root)
            for line in _do(replace(options, experiments=tuple(tuned)), work):
                print(f"trial: {line}", flush=True)
            damaged = list(work.damaged)
    return damaged


def _do(options: Options, work: Plan) -> list[str]:
    """Do the runs in two stages; return the failures."""
    todo = len(work.first) + len(work.then)
    count = min(options.workers or cores(), max(1, todo))
    about = f"about {span(estimate(work.first + work.then, count))} with {counted(count, 'worker')}"
    print(
        f"{counted(len(options.experiments), 'experiment')} at scale {options.scale}: "
        f"{counted(len(work), 'run')}, {work.done} done, "
        + (f"{todo} to do, {about}." if todo else "none to do."),
        flush=True,
    )
    failed = []
    for stage in (work.first, work.then):
        if not stage:
            continue
        if options.cluster is not None:
            from friendly_sam.lab.runner.cluster import run_on_cluster

            logs = options.folder / "cluster"
            outcomes = run_on_cluster(stage, logs, options.cluster, options.slurm)
        else:
            outcomes = run_all(stage, workers=options.workers)
        failed += [f"{o.folder.name}: {o.error}" for o in outcomes if o.error is not None]
    return failed


def _measure(options: Options) -> list[str]:
    """Measure what is not a training run: spectra and theorems."""
    from friendly_sam.lab.paper.measurements import measure_spectra, measure_theory
    from friendly_sam.lab.paper.step_cost import measure_step_costs

    failed = []
    for found in options.experiments:
        if found.drawing == "spectrum":
            failed += measure_spectra(found, options.scale, options.folder / "runs", options.seeds)
        if is_tuned(found, options.scale):
            measure_step_costs(found, options.scale, options.folder / "runs", options.data_root)
        if found.drawing == "theory":
            failed += measure_theory(options.folder / "theory", options.scale)
    return failed


def _remember(options: Options) -> None:
    """Note which experiments were asked for, and how, before anything runs: the page says so."""
    rows = read_requests(options.folder)["rows"]
    for found in options.experiments:
        old = rows.get(found.name, {})
        command = f"fsam reproduce {found.name} {options.settings}"
        new = {"command": command, "seeds": options.seeds}
        rows[found.name] = new if not options.report_only or not old else old
    ordered = {name: rows[name] for name in EXPERIMENTS if name in rows}
    write_requests(options.folder, {"scale": options.scale, "rows": ordered})


def show(scale: str, workers: int | None = None) -> int:
    """Print the experiments with what they cost."""
    count = workers or cores()
    chosen = scale_of(scale)
    workers_named = counted(count, "worker")
    print(f"experiments at scale {chosen} (--scale shows another), times with {workers_named}\n")
    seen: set[object] = set()
    width = max(map(len, EXPERIMENTS))
    print(f"{'name':<{width}}  {'runs':>5} {'new':>5}  {'time':>10}  what")
    for name, found in EXPERIMENTS.items():
        if chosen not in found.mapping:
            continue
        searched = found.tuning.expected_runs(chosen) if found.tuning else []
        runs = list(dict.fromkeys([*found.runs(chosen), *searched]))
        new = [r for r in runs if r not in seen]
        seen.update(runs)
        about = span(estimate(new, count)) if runs else "-"
        print(f"{name:<{width}}  {len(runs):>5} {len(new):>5}  {about:>10}  {found.title}")
    total = span(estimate(seen, count))  # type: ignore[arg-type]
    print(f"{'all':<{width}}  {len(seen):>5} {'':>5}  {total:>10}")
    print(
        "\nnew: not shared with one above; the time is for those, an experiment alone takes longer"
    )
    return 0


def span(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:,.0f} h"
