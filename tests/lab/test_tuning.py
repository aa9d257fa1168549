"""Every method is tuned alike: as many trials each, a choice by validation, fresh seeds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from small_experiments import shrink

from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper import tuning
from friendly_sam.lab.paper.chapters.tuned import accuracy_table, against_table, trials_table
from friendly_sam.lab.paper.comparisons import compare
from friendly_sam.lab.paper.experiments import experiment
from friendly_sam.lab.paper.results import Measured, Results, collect
from friendly_sam.lab.paper.tuned_record import Entry, Trial, TunedRecord, as_json, read_record
from friendly_sam.lab.paper.tuning import SEARCH_SEEDS, halton, search
from friendly_sam.lab.paper.which_method import PAGE, answers, better_ones, fill, sentence
from friendly_sam.lab.statistics import detectable, holm, p_value

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["relatives", "cheaper"])
def test_every_contender_has_as_many_trials_with_seeds_that_report_nothing(name: str) -> None:
    found = experiment(name)
    assert found.tuning is not None
    cells = search(found).cells("mini")
    contenders = found.tuning.contenders("mini")
    assert contenders[0].name == "SGD"
    for contender in contenders:
        own = [cell for cell in cells if cell.method == contender.name]
        assert len(own) == len({cell.runs[0] for cell in own}) == found.tuning.trials
        assert ("rho" in contender.ranges()) == (contender.run.method.name != "base")
        for cell in own:
            assert tuple(run.seed for run in cell.runs) == SEARCH_SEEDS
            resolve(cell.runs[0])
    fresh = {run.seed for cell in found.cells("mini") for run in cell.runs}
    assert len(fresh) >= 10
    assert not fresh & set(SEARCH_SEEDS)


def test_a_trial_has_one_learning_rate_and_weight_decay_for_all() -> None:
    contenders = experiment("cheaper").tuning.contenders("mini")  # type: ignore[union-attr]
    bases = {tuple(run.base for run in contender.trials(5)) for contender in contenders}
    assert len(bases) == 1
    assert contenders[3].trials(8)[:5] == contenders[3].trials(5)


def test_the_halton_sequence_is_that_of_the_books() -> None:
    assert [halton(n, 2) for n in range(1, 5)] == [0.5, 0.25, 0.75, 0.125]
    assert halton(5, 3) == pytest.approx(7 / 9)


def test_all_ways_to_pay_less_are_there_with_sgd_given_the_same_time() -> None:
    contenders = experiment("cheaper").tuning.contenders("mini")  # type: ignore[union-attr]
    runs = {contender.name: contender.run for contender in contenders}
    assert runs["SGD, twice the epochs"].epochs == 2 * runs["SGD"].epochs
    assert {run.method.ascent_fraction for run in runs.values()} == {1, 1 / 8, 1 / 16}
    assert {run.method.every for run in runs.values()} == {None, 2, 5, 10}
    assert {"looksam", "msam", "stale-sam", "stale-fsam"} <= {r.method.name for r in runs.values()}


def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, epochs=2)
    monkeypatch.setitem(tuning.FRESH_SEEDS, "mini", 3)
    found = experiment("cheaper")
    assert found.tuning is not None
    chosen = [c for c in found.tuning.contenders("mini") if c.name in ("SGD", "MSAM")]
    small = dataclasses.replace(found.tuning, contenders=lambda scale: chosen, trials=2)
    from friendly_sam.lab.paper import experiments

    monkeypatch.setitem(
        experiments.EXPERIMENTS,
        "cheaper",
        dataclasses.replace(found, tuning=small, cells=small.untuned_cells),
    )


def test_the_search_chooses_on_validation_and_fresh_seeds_are_tabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from friendly_sam.lab.cli import main

    _tiny(monkeypatch)
    command = ["reproduce", "cheaper", "--output", str(tmp_path), "--workers", "1"]
    assert main(command) == 0
    folder = tmp_path / "mini"
    record = read_record(folder / "cheaper.json")
    assert [entry.name for entry in record.entries] == ["SGD", "MSAM"]
    for entry in record.entries:
        assert sorted(entry.last) == sorted(entry.preferred) == [0, 1, 2]
        assert entry.chosen.validation == max(trial.validation or 0 for trial in entry.trials)
        assert entry.passes == 1
        assert entry.cost is not None
    assert record.entries[0].cost == 1
    found = collect(search(experiment("cheaper")), "mini", folder / "runs")
    assert _best(found, "MSAM") == record.entries[1].chosen.settings["rho"]
    text = (folder / "results.md").read_text()
    assert "epoch validation prefers" in text
    assert "chosen" in text.partition("The sweep, and what was chosen")[2]
    assert (folder / "figures" / "cheaper.svg").is_file()


def _best(found: Results, name: str) -> float | None:
    trials: list[Measured] = [cell for cell in found.cells if cell.cell.method == name]
    return max(trials, key=tuning.validation).cell.runs[0].method.rho


def entry(name: str, mean: float, *, method: str = "F-SAM", passes: float = 1.0) -> Entry:
    """Make a contender whose scores lie around a mean."""
    trial = Trial(settings={"lr": 0.1, "weight_decay": 0.01}, validation=mean)
    offsets = (-0.5, 0.2, 0.4, -0.3, 0.2)
    wobble = (0.05, -0.05, 0.0, 0.02, -0.02) if name != "SGD" else (0.0,) * 5
    scores = {s: mean + o + w for s, (o, w) in enumerate(zip(offsets, wobble, strict=True))}
    return Entry(
        name=name, method=method, passes=passes, cost=passes, chosen=trial, edge=[],
        trials=[trial], last=scores, preferred=scores,
    )  # fmt: skip


def record(*entries: Entry) -> TunedRecord:
    """Make a record on wrong labels."""
    return TunedRecord(
        experiment="cheaper", scale="mini", task="digits", situation="wrong labels",
        command="fsam reproduce cheaper", search_seeds=[1000, 1001],
        entries=[entry("SGD", 80.0, method="SGD"), *entries],
    )  # fmt: skip


def test_the_answer_is_the_best_that_the_budget_allows() -> None:
    found = record(entry("cheap", 82.0), entry("dear", 85.0, passes=2.0))
    rows = {(row[0], row[1]): row for row in answers([found]).rows}
    assert rows["wrong labels", "1"][3].startswith("cheap: 82.00")
    assert rows["wrong labels", "2"][3].startswith("dear: 85.00")
    assert rows["wrong labels", "2"][5] == "cheap +2.00"
    assert rows["fine-tuning", "any"][3] == "not measured yet"
    assert "cheap, with a radius of its own, beats the tuned SGD" in sentence([found])
    assert rows["wrong labels", "2"][6] == "-"


def test_what_is_not_tuned_yet_is_named_where_the_budget_would_allow_it() -> None:
    waiting = {"SGD, longer": 2.0, "slow": 3.0}
    found = dataclasses.replace(record(entry("cheap", 82.0)), waiting=waiting)
    rows = {row[1]: row for row in answers([found]).rows if row[0] == "wrong labels"}
    assert [rows[budget][6] for budget in ("1", "1.1", "2")] == ["-", "-", "SGD, longer"]


def test_where_nothing_beats_the_base_optimizer_it_says_so() -> None:
    found = record(entry("worse", 79.0), entry("SGD, longer", 90.0, method="SGD", passes=2.0))
    rows = {row[1]: row for row in answers([found]).rows if row[0] == "wrong labels"}
    assert rows["1"][3].startswith("nothing beats the tuned SGD (80.00")
    assert rows["2"][3].startswith("nothing beats the tuned SGD, longer")
    assert "stay with SGD" in sentence([found])
    rival, _ = better_ones(found, 2.0)
    assert rival is not None
    assert rival.name == "SGD, longer"


def test_differences_are_corrected_for_their_number() -> None:
    base, one, two = record(entry("one", 80.03), entry("two", 80.03)).entries
    alone, both = compare([one], base), compare([one, two], base)
    assert both[0].p == pytest.approx(min(1.0, 2 * alone[0].p))
    assert both[0].difference == alone[0].difference


def test_a_record_survives_its_file_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    found, path = record(entry("cheap", 82.0)), tmp_path / "cheaper.json"
    path.write_text(as_json(found))
    assert read_record(path) == found
    for table in (accuracy_table(found), against_table(found), trials_table(found)):
        assert all(len(row) == len(table.header) for row in table.rows)
    values = json.loads(path.read_text())
    del values["entries"][0]["chosen"]
    path.write_text(json.dumps(values))
    with pytest.raises(LabError, match=r"cheaper\.json is damaged"):
        read_record(path)


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
