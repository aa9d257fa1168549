"""What `fsam reproduce` measures beside training: spectra, the cost of a step, the theorems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import small_experiments
from lab_runs import tiny_config

from friendly_sam import SharpnessAware
from friendly_sam.lab.cli import main
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.paper import step_cost
from friendly_sam.lab.paper.experiments import EXPERIMENTS
from friendly_sam.lab.paper.theory import measure
from friendly_sam.lab.training.distributed import world
from friendly_sam.lab.training.trainer import Trainer

NAMES = ("figureA3", "ascent-fraction", "theory")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder in which the rows with measurements are finished."""
    output: Path = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        _shrink(patch)
        assert _reproduce(output) == 0
    return output / "mini"


def _shrink(patch: pytest.MonkeyPatch) -> None:
    small_experiments.shrink(patch, seeds=2)
    tiny = measure.Scale((0.1, 0.01), 3, 60, 40, 3, (16, 64), 3)
    patch.setitem(measure.SCALES, "mini", tiny)


def _reproduce(output: Path) -> int:
    return main(["reproduce", *NAMES, "--output", str(output), "--workers", "1"])


def test_each_run_of_the_spectrum_row_is_measured_and_shown(done):
    found = list(done.glob("runs/*/sharpness.json"))
    assert len(found) == 2 * 2, "two seeds of SAM and of F-SAM"
    values = json.loads(found[0].read_text())
    assert values["lambda1"] == max(values["eigenvalues"])
    page = (done / "results.md").read_text()
    chapter = page.partition("## figureA3")[2].partition("\n## ")[0]
    assert "λ1 is smaller with F-SAM" in chapter
    assert "undecided at n = 2" in chapter
    assert (done / "figures" / "figureA3.svg").is_file()


def test_the_price_of_a_step_is_measured_for_each_method(done):
    costs = json.loads((done / "step-costs.json").read_text())
    parts = [f"{m}{part}" for m in ("SAM", "F-SAM") for part in ("", ", 1/4", ", 1/8")]
    assert {"SGD: SGD", *(f"SGD: {name}" for name in parts)} <= set(costs)
    assert costs["SGD: SGD"] == 1
    assert costs["SGD: SAM"] > 1.3, "two passes cost more than one"
    chapter = (done / "results.md").read_text().partition("## ascent-fraction")[2]
    assert f"{round(costs['SGD: SAM'], 3):.2f}" in chapter


def test_the_theorems_have_a_chapter_with_verdicts_and_pictures(done):
    values = json.loads((done / "theory" / "theory.json").read_text())
    chapter = (done / "results.md").read_text().partition("## theory")[2].partition("\n## ")[0]
    assert values["claims"]
    for claim in values["claims"]:
        assert claim["text"] in chapter
    assert chapter.count("![") >= 3
    page = (done / "index.html").read_text()
    assert page.count("<svg") > 3


def test_nothing_is_measured_twice(done, capsys, monkeypatch):
    _shrink(monkeypatch)
    files = [
        done / "step-costs.json",
        *done.glob("runs/*/sharpness.json"),
        *done.glob("theory/*1.json"),
    ]
    before = [path.stat().st_mtime_ns for path in files]
    assert _reproduce(done.parent) == 0
    assert [path.stat().st_mtime_ns for path in files] == before
    assert "spectrum of" not in capsys.readouterr().out


def test_damaged_step_costs_are_told_in_one_line(done, capsys, monkeypatch):
    _shrink(monkeypatch)
    path = done / "step-costs.json"
    text = path.read_text()
    path.write_text(text[:20])
    try:
        assert _reproduce(done.parent) != 0
        assert "step-costs.json" in capsys.readouterr().err
    finally:
        path.write_text(text)


@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_step_cost_times_perturbed_steps_in_every_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    method = {"name": "fsam", "every": every}
    config = resolve(tiny_config(tmp_path / "run", method=method, data={"batch_size": 25}))
    with world(config.engine) as here:
        trainer = Trainer(config, here)
    ascents_seen: list[None] = []
    perturbed = SharpnessAware.perturbed

    def counted(self: SharpnessAware, **options: Any) -> Any:
        ascents_seen.append(None)
        return perturbed(self, **options)

    monkeypatch.setattr(SharpnessAware, "perturbed", counted)
    for turn in range(4):
        step_cost._time(trainer, turn)
        assert len(ascents_seen) == (turn + 1) * step_cost.STEPS


def test_a_step_costs_what_its_own_base_optimizer_is_multiplied_by(tmp_path, monkeypatch):
    """Figure 2 trains with SGD and fine-tunes with AdamW, on batches of other sizes."""
    seconds = {"SGD: SGD/AdamW": 10.0, "SGD: SAM": 20.0, "AdamW: SGD/AdamW": 4.0, "AdamW: SAM": 9.0}
    monkeypatch.setattr(step_cost, "_measure", lambda runs, *_: {key: seconds[key] for key in runs})
    step_cost.measure_step_costs(EXPERIMENTS["figure2a"], "mini", tmp_path / "runs")
    found = step_cost.read_step_costs(tmp_path, EXPERIMENTS["figure2a"], "mini")
    assert (found["SGD: SAM"], found["AdamW: SAM"]) == (2.0, 2.25)
    assert not any("SAM-full" in key for key in found), "its cost is another in every task"


def test_what_is_timed_at_mini_can_be_trained():
    for name, found in EXPERIMENTS.items():
        for key, run in step_cost._timed(found, "mini").items():
            images = run.data.train_size
            assert images is None or run.data.batch_size <= images, (name, key)
