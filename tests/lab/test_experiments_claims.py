"""Verdicts come from paired differences, and need three seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.paper.chapters.html import difference_text
from friendly_sam.lab.paper.claims import (
    Claim,
    beats,
    beats_at_each,
    falls,
    gain_grows,
    less_sensitive,
)
from friendly_sam.lab.paper.experiment import Cell, Experiment
from friendly_sam.lab.paper.results import Measured, Results
from friendly_sam.lab.records.run import Run

Values = dict[tuple[str, float | None], list[float]]


def results(values: Values, validation: Values | None = None) -> Results:
    """Give results as if runs had ended with these accuracies, a list of seeds each."""
    cells = []
    for (method, x), scores in values.items():
        held_out = (validation or values)[method, x]
        runs = {seed: _run(seed, s, held_out[seed]) for seed, s in enumerate(scores)}
        configs = tuple(RunConfig(seed=seed) for seed in range(len(scores)))
        cells.append(Measured(cell=Cell(panel="task", method=method, x=x, runs=configs), runs=runs))
    row = Experiment(name="row", title="", claim="", cells=lambda scale: [], mapping={})
    return Results(experiment=row, scale="mini", cells=tuple(cells))


def _run(seed: int, accuracy: float, validation: float) -> Run:
    line = {"test_accuracy": accuracy, "validation_accuracy": validation, "epoch": 1}
    return Run(
        folder=Path(f"run{seed}"),
        config=RunConfig(seed=seed),
        state="finished",
        message="",
        metrics=(line,),
        environment={},
    )


SAM, FSAM = ("SAM", None), ("F-SAM", None)
UP, DOWN = [91.0, 92.1, 93.2], [90.0, 91.0, 92.0]


@pytest.mark.parametrize(
    ("fsam", "sam", "verdict"),
    [
        (UP, DOWN, "holds"),
        (DOWN, UP, "does not hold"),
        ([91.0, 90.0, 92.5], [90.0, 91.0, 92.0], "undecided"),
        (UP[:2], DOWN[:2], "undecided"),
        (UP[:1], DOWN[:1], "undecided"),
        ([], [], "not run"),
    ],
)
def test_a_verdict_follows_the_interval_and_needs_three_seeds(fsam, sam, verdict):
    judgement = beats("F-SAM", "SAM").judge(results({FSAM: fsam, SAM: sam}))
    assert judgement.verdict == verdict
    assert judgement.n == len(sam)


@pytest.mark.parametrize(("fsam", "sam"), [(UP, DOWN), (DOWN, UP)])
def test_no_verdict_rests_on_the_runs_that_survived(fsam, sam):
    both = results({FSAM: [*fsam, 90.0], SAM: [*sam, 90.0]})
    runs = dict(list(both.cells[0].runs.items())[:3])
    failed = replace(both, cells=(replace(both.cells[0], runs=runs), *both.cells[1:]))
    judgement = beats("F-SAM", "SAM").judge(failed)
    assert judgement.verdict == "undecided"
    assert [c.missing for c in judgement.comparisons] == [1]
    assert "(n=3; 1 seed missing" in difference_text(judgement.comparisons[0])


def test_one_task_that_speaks_against_it_is_enough():
    good = results({FSAM: UP, SAM: DOWN})
    bad = results({FSAM: DOWN, SAM: UP})
    other = tuple(
        Measured(
            cell=Cell(panel="other", method=c.cell.method, x=c.cell.x, runs=c.cell.runs),
            runs=c.runs,
        )
        for c in bad.cells
    )
    both = Results(experiment=good.experiment, scale="mini", cells=good.cells + other)
    assert beats("F-SAM", "SAM").judge(both).verdict == "does not hold"


def test_a_margin_asks_only_that_nothing_much_is_lost():
    claim = beats("F-SAM", "SAM", margin=2.0)
    assert claim.judge(results({FSAM: DOWN, SAM: UP})).verdict == "holds"


def test_the_radius_is_chosen_on_validation_and_not_on_the_test():
    test: Values = {("SAM", 0.1): [80.0] * 3, ("SAM", 0.4): [99.0] * 3}
    validation: Values = {("SAM", 0.1): [70.0] * 3, ("SAM", 0.4): [10.0] * 3}
    chosen = results(test, validation).chosen("task", "SAM")
    assert chosen is not None
    assert chosen.cell.x == 0.1


def test_a_sweep_with_a_missing_run_chooses_nothing():
    found = results({("SAM", 0.1): [80.0] * 3, ("SAM", 0.4): [70.0] * 3})
    last = found.cells[-1]
    torn = Measured(cell=last.cell, runs={0: last.runs[0]})
    partial = Results(experiment=found.experiment, scale="mini", cells=(found.cells[0], torn))
    assert partial.chosen("task", "SAM") is None


SWEEP: Values = {
    ("SAM", 0.1): [90.0, 91.0, 92.0],
    ("SAM", 0.8): [10.0, 11.5, 12.0],
    ("F-SAM", 0.1): [90.1, 91.0, 91.9],
    ("F-SAM", 0.8): [80.0, 81.0, 82.0],
}


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (less_sensitive("F-SAM", "SAM", text=""), "holds"),
        (less_sensitive("SAM", "F-SAM", text=""), "does not hold"),
        (gain_grows("F-SAM", "SAM", text=""), "holds"),
        (falls("SAM", text=""), "holds"),
        (beats_at_each("F-SAM", "SAM", text=""), "undecided"),
        (beats_at_each("F-SAM", "SAM", text="", at=0.8), "holds"),
        (beats("SAM", "F-SAM", lower=True), "undecided"),
    ],
)
def test_claims_about_sweeps(claim: Claim, verdict: str):
    assert claim.judge(results(SWEEP)).verdict == verdict


def test_a_contender_whose_settings_are_not_chosen_yet_keeps_a_claim_open():
    found = results({FSAM: UP, SAM: DOWN})
    waiting = replace(found, experiment=replace(found.experiment, unsettled=True))
    assert beats("F-SAM", "SAM").judge(waiting).verdict == "undecided"
    against = replace(waiting, cells=results({FSAM: DOWN, SAM: UP}).cells)
    assert beats("F-SAM", "SAM").judge(against).verdict == "does not hold"


def test_a_gain_does_not_grow_over_a_single_point():
    one = {key: scores for key, scores in SWEEP.items() if key[1] == 0.1}
    assert gain_grows("F-SAM", "SAM", text="").judge(results(one)).verdict == "not run"


def test_a_point_is_named_with_its_unit():
    found = results(
        {("SAM", 20.0): UP, ("SAM", 60.0): UP, ("F-SAM", 20.0): DOWN, ("F-SAM", 60.0): UP}
    )
    found = replace(found, experiment=replace(found.experiment, x_unit=" % random labels"))
    each = beats_at_each("F-SAM", "SAM", text="").judge(found).comparisons
    assert each[0].label == "task, 20 % random labels: F-SAM - SAM"
    grows = gain_grows("F-SAM", "SAM", text="").judge(found).comparisons
    assert grows[0].label == "task: lead of F-SAM at 60 % random labels minus at 20"


def test_a_rate_that_was_not_run_keeps_the_claim_open():
    found = results({("SAM", 20.0): UP, ("SGD", 20.0): DOWN, ("SAM", 60.0): UP, ("SGD", 60.0): []})
    assert beats_at_each("SAM", "SGD", text="").judge(found).verdict == "undecided"
