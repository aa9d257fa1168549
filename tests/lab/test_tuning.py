"""Every method is tuned alike: as many trials each, a choice by validation, fresh seeds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from small_experiments import shrink

from friendly_sam.lab.cli import reproduce
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.settings import changed
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper import tuning
from friendly_sam.lab.paper.chapters.panels import panels
from friendly_sam.lab.paper.chapters.tuned import (
    accuracy_table,
    against_table,
    search_table,
    trials_table,
)
from friendly_sam.lab.paper.claims import judge_all
from friendly_sam.lab.paper.comparisons import compare
from friendly_sam.lab.paper.experiments import EXPERIMENTS, SCALES, Scale, experiment
from friendly_sam.lab.paper.publish import merged, publish
from friendly_sam.lab.paper.results import Measured, Results, collect
from friendly_sam.lab.paper.run_folders import place
from friendly_sam.lab.paper.tuned_record import (
    Entry,
    Trial,
    TunedRecord,
    as_json,
    read_records,
    tuned_records,
)
from friendly_sam.lab.paper.tuning import (
    SEARCH_SEEDS,
    TRIALS,
    Contender,
    Trials,
    is_tuned,
    settled,
)
from friendly_sam.lab.paper.which_method import PAGE, Answer, answers, answers_table, fill, sentence
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.runner.pool import Outcome
from friendly_sam.lab.search.space import Choice, Range, around, at_edge
from friendly_sam.lab.statistics import detectable, holm, p_value
from friendly_sam.lab.training.trainer import train

DOCS = Path(__file__).parents[2] / "docs"


TUNED = [name for name, found in EXPERIMENTS.items() if found.tuning is not None]


def test_every_experiment_that_depends_on_a_setting_is_tuned() -> None:
    assert set(EXPERIMENTS) - set(TUNED) == {"theory"}


@pytest.mark.parametrize("name", TUNED)
@pytest.mark.parametrize("scale", SCALES)
def test_every_contender_has_as_many_trials_with_seeds_that_report_nothing(
    name: str, scale: Scale
) -> None:
    found = experiment(name)
    if scale not in found.mapping or not is_tuned(found, scale):
        return
    assert found.tuning is not None
    words = {2: "two seeds", 5: "five seeds"}
    told = [number for number, text in words.items() if text in found.mapping[scale]]
    for task in found.tuning.tasks(scale):
        assert told in ([], [len(task.search_seeds)])
        assert task.x is None or task.unit == found.x_unit
        for contender in task.contenders:
            wide = contender.wide()
            trials = [*wide, *contender.near(wide[0])]
            assert len(set(trials)) == TRIALS.wide + TRIALS.near
            assert {"base.lr", "base.weight_decay"} <= contender.space.keys()
            assert ("method.rho" in contender.space) == (contender.run.method.name != "base")
            for cell in task.trial_cells(contender, trials):
                assert tuple(run.seed for run in cell.runs) == task.search_seeds
                assert not any(run.engine.eval_test for run in cell.runs)
                resolve(cell.runs[0])
    fresh = {run.seed for cell in found.cells(scale) for run in cell.runs}
    assert len(fresh) >= (10 if scale in ("mini", "real") else 3)
    assert not fresh & {seed for t in found.tuning.tasks(scale) for seed in t.search_seeds}
    assert all(t.search_seeds[:2] == SEARCH_SEEDS for t in found.tuning.tasks(scale))
    assert all(run.engine.eval_test for cell in found.cells(scale) for run in cell.runs)


def test_a_trial_has_one_learning_rate_and_weight_decay_for_all() -> None:
    contenders = contenders_of("cheaper")
    bases = {tuple(run.base for run in contender.wide()) for contender in contenders}
    assert len(bases) == 1


def test_trials_near_the_edge_reach_past_it() -> None:
    space = {"base.lr": Range(0.01, 1.0), "engine.precision": Choice(("fp32", "bf16"))}
    contender = Contender(name="SGD", run=RunConfig(), space=space)
    at_edge = changed(RunConfig(), {"base.lr": 0.9, "engine.precision": "bf16"})
    near = contender.near(at_edge)
    assert any(run.base.lr > 1.0 for run in near)
    assert {run.engine.precision for run in near} == {"bf16"}
    assert {run.engine.precision for run in contender.wide()} == {"fp32", "bf16"}


def test_the_edge_is_that_of_all_that_was_searched() -> None:
    wide = {"base.lr": Range(0.01, 1.0)}
    near = around(wide, {"base.lr": 0.9})
    assert at_edge(wide, near, {"base.lr": 0.9}) == []
    assert at_edge(wide, near, {"base.lr": 2.7}) == ["base.lr"]
    assert at_edge(wide, wide, {"base.lr": 0.9}) == ["base.lr"]


def contenders_of(name: str) -> tuple[Contender, ...]:
    """Return the contenders of an experiment's only task at `mini`."""
    found = experiment(name).tuning
    assert found is not None
    return found.tasks("mini")[0].contenders


def test_all_ways_to_pay_less_are_there_with_sgd_given_the_same_time() -> None:
    runs = {contender.name: contender.run for contender in contenders_of("cheaper")}
    assert runs["SGD, twice the epochs"].epochs == 2 * runs["SGD"].epochs
    assert {run.method.ascent_fraction for run in runs.values()} == {1, 1 / 8, 1 / 16}
    assert {run.method.every for run in runs.values()} == {None, 2, 5, 10}
    assert {"looksam", "msam", "stale-sam", "stale-fsam"} <= {r.method.name for r in runs.values()}


def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, epochs=2)
    monkeypatch.setattr(tuning, "TRIALS", Trials(wide=2, near=1))
    found = experiment("cheaper")
    assert found.tuning is not None
    task = found.tuning.tasks("mini")[0]
    few = replace(task, contenders=tuple(c for c in task.contenders if c.name in ("SGD", "MSAM")))
    small = replace(found.tuning, tasks=lambda scale: [few])
    monkeypatch.setitem(EXPERIMENTS, "cheaper", replace(found, tuning=small, cells=small.unchosen))


def in_this_process(configs: Sequence[RunConfig], **options: object) -> list[Outcome]:
    """Do what `run_all` does without its processes, whose start takes longer than the runs."""
    for config in configs:
        train(config)
    return [Outcome(config=config) for config in configs]


def test_the_search_chooses_on_validation_and_fresh_seeds_are_tabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from friendly_sam.lab.cli import main

    _tiny(monkeypatch)
    monkeypatch.setattr(reproduce, "run_all", in_this_process)
    assert settled(EXPERIMENTS["cheaper"], "mini", tmp_path / "mini" / "runs").unsettled
    command = ["reproduce", "cheaper", "--output", str(tmp_path), "--workers", "1"]
    assert main(command) == 0
    folder = tmp_path / "mini"
    assert not settled(EXPERIMENTS["cheaper"], "mini", folder / "runs").unsettled
    (record,) = read_records(folder / "cheaper.json")
    assert [entry.name for entry in record.entries] == ["SGD", "MSAM"]
    assert not record.waiting
    runs = [read_run(path.parent) for path in (folder / "runs").glob("*/config.yaml")]
    assert {run.config.seed for run in runs if run.series("test_accuracy")} == {0, 1, 2}
    for entry in record.entries:
        assert sorted(entry.last) == sorted(entry.preferred) == [0, 1, 2]
        assert len(entry.trials) == 3
        assert entry.chosen.validation == max(trial.validation or 0 for trial in entry.trials)
        assert entry.passes == 1
        assert entry.cost is not None
    assert record.entries[0].cost == 1
    text = (folder / "results.md").read_text()
    assert "epoch validation prefers" in text
    assert "chosen" in text.partition("The sweep, and what was chosen")[2]
    assert (folder / "figures" / "cheaper.svg").is_file()
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / PAGE).write_text("<!-- begin sentence -->\n<!-- end sentence -->")
    assert publish(folder, docs) == docs / "results" / "mini"
    assert {path.name for path in (docs / "results" / "mini").rglob("*.*")} == {
        "README.md", "records.jsonl", "cheaper.json", "cheaper.svg",
    }  # fmt: skip
    assert "With a budget of 1.1" in (docs / PAGE).read_text()
    kept = (folder / "cheaper.json").read_text()
    assert main(command) == 0
    assert (folder / "cheaper.json").read_text() == kept


def test_a_page_keeps_what_was_not_run_again_and_drops_what_the_scale_no_longer_has() -> None:
    foot = "\n---\nfoot"
    row = "| [{0}](#{0}) | claim | undecided | |\n"
    old = f"head\n{row.format('table1')}{row.format('table2')}\n## table1\nold\n\n## table2\n"
    new = f"head\n{row.format('cheaper')}\n## cheaper\nnew\n"
    page = merged(old + foot, new + foot, "medium")
    assert [word in page for word in ("## table1", "## cheaper", "table2")] == [True, True, False]
    assert "## table2" in merged(old + foot, new + foot, "mini")


def entry(name: str, mean: float, *, method: str = "F-SAM", passes: float = 1.0) -> Entry:
    """Make a contender whose scores lie around a mean."""
    trial = Trial(settings={"base.lr": 0.1, "base.weight_decay": 0.01}, validation=mean)
    offsets = (-0.5, 0.2, 0.4, -0.3, 0.2)
    wobble = (0.05, -0.05, 0.0, 0.02, -0.02) if name != "SGD" else (0.0,) * 5
    scores = {s: mean + o + w for s, (o, w) in enumerate(zip(offsets, wobble, strict=True))}
    return Entry(
        name=name, method=method, passes=passes, cost=passes, chosen=trial, edge=[],
        trials=[trial], last=scores, preferred=scores,
    )  # fmt: skip


SITUATION = "wrong labels"


def within(found: TunedRecord, budget: float) -> Answer:
    """Return what a budget buys on a task."""
    (answer,) = (answer for answer in answers([found]) if answer.budget == budget)
    return answer


def record(*entries: Entry) -> TunedRecord:
    """Make a record on wrong labels."""
    return TunedRecord(
        experiment="cheaper", scale="mini", task="digits", situation=SITUATION,
        command="fsam reproduce cheaper", search_seeds=[1000, 1001],
        entries=[entry("SGD", 80.0, method="SGD"), *entries],
    )  # fmt: skip


def test_the_answer_is_the_best_that_the_budget_allows() -> None:
    found = record(entry("cheap", 82.0), entry("dear", 85.0, passes=2.0))
    rows = {(row[0], row[1]): row for row in answers_table(answers([found])).rows}
    assert rows["wrong labels", "1, 1.1"][3].startswith("cheap: 82.00")
    assert rows["wrong labels", "2"][3].startswith("dear: 85.00")
    assert rows["wrong labels", "2"][5] == "cheap +2.00"
    assert rows["fine-tuning", "any"][3] == "not measured yet"
    assert "cheap, with a radius of its own, beats the tuned SGD" in sentence(answers([found]))
    assert rows["wrong labels", "2"][6] == "-"


def test_what_is_not_tuned_yet_is_named_where_the_budget_would_allow_it() -> None:
    waiting = {"SGD, longer": 2.0, "slow": 3.0}
    found = dataclasses.replace(record(entry("cheap", 82.0)), waiting=waiting)
    rows = {row[1]: row for row in answers_table(answers([found])).rows if row[0] == "wrong labels"}
    assert {budget: row[6] for budget, row in rows.items()} == {"1, 1.1": "-", "2": "SGD, longer"}


def test_a_task_within_another_is_told_once_and_a_budget_that_nothing_fits_not_at_all() -> None:
    wide = record(entry("dear", 85.0, passes=2.0), entry("dearer", 86.0, passes=2.0))
    narrow = dataclasses.replace(wide, task="digits, 60 %", entries=wide.entries[:2])
    again = dataclasses.replace(wide, task="digits, the same")
    other = dataclasses.replace(record(entry("dear", 81.0, passes=2.0)), task="letters")
    rows = [
        row[1:4]
        for row in answers_table(answers([narrow, wide, again, other])).rows
        if row[0] == SITUATION
    ]
    assert [row[:2] for row in rows] == [["2", "mini: digits"], ["2", "mini: letters"]]


def test_many_that_are_better_are_counted() -> None:
    found = record(*(entry(str(number), 90.0 - number) for number in range(8)))
    (row,) = [row for row in answers_table(answers([found])).rows if row[0] == SITUATION]
    assert row[5] == "1 +9.00, 2 +8.00, 3 +7.00, 4 +6.00, and 3 more"


def test_where_nothing_beats_the_base_optimizer_it_says_so() -> None:
    found = record(entry("worse", 79.0), entry("SGD, longer", 90.0, method="SGD", passes=2.0))
    rows = {row[1]: row for row in answers_table(answers([found])).rows if row[0] == "wrong labels"}
    assert rows["1, 1.1"][3].startswith("nothing beats the tuned SGD (80.00")
    assert rows["2"][3].startswith("nothing beats the tuned SGD, longer")
    assert "stay with SGD" in sentence(answers([found]))
    rival = within(found, 2.0).rival
    assert rival is not None
    assert rival.name == "SGD, longer"


def test_the_rival_is_picked_as_the_answer_is() -> None:
    longer = entry("SGD, longer", 86.0, method="SGD", passes=2.0)
    unlucky = dataclasses.replace(longer, chosen=Trial(settings={}, validation=70.0))
    found = within(record(unlucky, entry("dear", 85.0, passes=2.0)), 2.0)
    assert found.rival is unlucky
    assert found.leads[0].verdict == "worse"


def test_answers_are_corrected_for_all_that_is_compared_in_a_situation() -> None:
    cheap, dear = entry("cheap", 80.05), entry("dear", 80.05, passes=2.0)
    alone, both = within(record(cheap), 1.0), within(record(cheap, dear), 1.0)
    assert both.leads[0].p == pytest.approx(2 * alone.leads[0].p)
    assert both.leads[0].difference == alone.leads[0].difference


def test_a_failed_run_is_named_and_gives_no_verdict() -> None:
    lucky = entry("lucky", 90.0)
    some = {seed: score for seed, score in lucky.last.items() if seed < 3}
    found = record(dataclasses.replace(lucky, last=some, preferred=some, missing=2))
    assert compare([(found.entries[1], found.entries[0])])[0].verdict == "runs are missing"
    assert "(n=3 of 5)" in accuracy_table([found]).rows[1][1]
    assert not within(found, 2.0).better


@pytest.mark.parametrize("missing", [2, 0])
def test_the_answer_is_open_where_the_best_has_no_verdict(missing: int) -> None:
    best = entry("best", 90.0, passes=2.0)
    some = dict(list(best.last.items())[: 5 - missing] if missing else list(best.last.items())[:2])
    found = record(dataclasses.replace(best, last=some, missing=missing))
    (row,) = [row for row in answers_table(answers([found])).rows if row[0] == SITUATION]
    why = "runs are missing" if missing else "too few seeds"
    assert row[3] == f"undecided, {why} for best"
    assert f"undecided, {why} for best." in sentence(answers([found]), 2.0)
    assert "nothing beats" not in sentence(answers([found]), 2.0)


def test_two_seeds_are_too_few_for_a_verdict() -> None:
    lucky = entry("lucky", 90.0)
    two = dataclasses.replace(lucky, last={0: 90.0, 1: 90.1})
    base = entry("SGD", 80.0, method="SGD")
    assert compare([(two, base)])[0].verdict == "too few seeds"


def test_differences_are_corrected_for_their_number() -> None:
    base, one, two = record(entry("one", 80.03), entry("two", 80.03)).entries
    alone, both = compare([(one, base)]), compare([(one, base), (two, base)])
    assert both[0].p == pytest.approx(min(1.0, 2 * alone[0].p))
    assert both[0].difference == alone[0].difference


def test_a_record_survives_its_file_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    found, path = record(entry("cheap", 82.0)), tmp_path / "cheaper.json"
    path.write_text(as_json([found]))
    assert read_records(path) == [found]
    for make in (accuracy_table, against_table, trials_table, search_table):
        for records in ([found], [found, found]):
            table = make(records)
            assert all(len(row) == len(table.header) for row in table.rows)
    values = json.loads(path.read_text())
    del values[0]["entries"][0]["chosen"]
    path.write_text(json.dumps(values))
    with pytest.raises(LabError, match=r"cheaper\.json is damaged"):
        read_records(path)


def test_the_page_is_that_of_the_records() -> None:
    page = (DOCS / PAGE).read_text(encoding="utf-8")
    assert fill(page, DOCS) == page, "run python -m friendly_sam.lab.paper.which_method docs"


def test_holm_is_the_step_down_of_bonferroni() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_the_p_of_a_paired_test_is_that_of_scipy() -> None:
    from scipy.stats import ttest_rel

    first, second = {0: 1.0, 1: 2.5, 2: 3.0, 7: 9.0}, {0: 0.5, 1: 2.6, 2: 2.0}
    wanted = ttest_rel([1.0, 2.5, 3.0], [0.5, 2.6, 2.0]).pvalue
    assert p_value(first, second) == pytest.approx(wanted)
    assert p_value(first, first) == 1
    assert p_value({0: 1.0}, {0: 2.0}) is None
    assert detectable([0.5, -0.1, 1.0]) > 0


def test_a_claim_about_a_sweep_waits_for_its_ends() -> None:
    found = experiment("table6")
    for keep in ((), ("SGD",), ("SGD", "SAM", "F-SAM")):
        cells = [cell for cell in found.cells("mini") if cell.method in keep]
        partial = replace(found, cells=lambda scale, cells=cells: cells, unsettled=True)
        results = collect(partial, "mini", Path("nowhere"))
        assert {judged.verdict for judged in judge_all(found.claims, results)} == {"not run"}
        assert panels(results) == []


def test_without_the_base_optimizer_there_is_nothing_to_compare_with() -> None:
    found = experiment("table1")
    cells = found.cells("mini")
    without = tuple(
        Measured(cell=cell, runs={0: object()})  # type: ignore[dict-item]
        for cell in cells
        if cell.method != "SGD"
    )
    results = Results(experiment=found, scale="mini", cells=without)
    searched = Results(experiment=found, scale="mini", cells=())
    for made in tuned_records(results, searched, "command"):
        assert not made.entries
        assert "SGD" in made.waiting


@pytest.mark.parametrize(
    ("states", "lost"),
    [
        (("finished", "failed"), True),
        (("failed", "failed"), True),
        (("finished", "finished"), False),  # damaged: it may be done again
        (("failed", "running"), False),
        (("finished", None), False),
    ],
)
def test_a_trial_is_lost_where_a_run_of_it_failed(
    states: tuple[str | None, ...], lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = experiment("table1").tuning.tasks("mini")[0].wide_cells()[0]  # type: ignore[union-attr]
    known = iter(states)
    monkeypatch.setattr(tuning, "run_state", lambda folder: next(known))
    assert tuning._failed(Measured(cell=cell, runs={}), Path("nowhere")) is lost


def test_a_trial_whose_status_cannot_be_read_is_not_lost(tmp_path: Path) -> None:
    cell = experiment("table1").tuning.tasks("mini")[0].wide_cells()[0]  # type: ignore[union-attr]
    for run in cell.runs:
        folder = Path(str(place(run, tmp_path).output))
        folder.mkdir(parents=True)
        for name in ("config.yaml", "status.json"):
            (folder / name).write_text("{")
    assert not tuning._failed(Measured(cell=cell, runs={}), tmp_path)
