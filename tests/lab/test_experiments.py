"""Every row at every scale is a list of valid runs, and says what it changed."""

from __future__ import annotations

import dataclasses

import pytest

from friendly_sam.lab.config.identity import identity
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.experiments import EXPERIMENTS, SCALES, experiment
from friendly_sam.lab.paper.plan import estimate, plan
from friendly_sam.lab.paper.printed import printed, source
from friendly_sam.lab.paper.run_folders import needs, place

NAMES = [
    "table1", "table2", "table3", "table4", "table5", "table6", "decay",
    "figure2a", "figure2b", "figure2c", "figureA1", "figure3", "figure4", "figureA2", "figureA3",
    "theory", "ascent-fraction", "relatives", "cheaper", "long-training",
    "transfer-noise",
]  # fmt: skip


def test_there_is_a_row_for_every_table_and_figure():
    assert list(EXPERIMENTS) == NAMES


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_a_row_has_valid_runs_a_mapping_and_a_claim(name, scale):
    row = experiment(name)
    if scale not in row.mapping:
        assert scale in ("medium", "real") or name in ("transfer-noise", "long-training")
        return
    assert row.mapping[scale]
    assert row.claim
    cells = row.cells(scale)
    keys = [(cell.panel, cell.method, cell.x) for cell in cells]
    assert len(set(keys)) == len(keys), "two cells of one name"
    for cell in cells:
        assert [run.seed for run in cell.runs] == list(range(len(cell.runs)))
        assert len(cell.runs) >= 3
        for run in cell.runs:
            resolve(run)


@pytest.mark.parametrize("scale", SCALES)
def test_settings_are_never_chosen_on_the_test_images(scale):
    for row in EXPERIMENTS.values():
        for run in row.tuning.expected_runs(scale) if row.tuning and scale in row.mapping else []:
            assert run.data.validation_size, row.name
        swept = row.one_setting and row.log_x and scale in row.mapping
        for run in row.runs(scale) if swept else []:
            assert run.data.validation_size, row.name


def test_rows_share_the_runs_that_are_the_same(tmp_path):
    both = plan([experiment("table1"), experiment("figure3")], "mini", tmp_path)
    alone = plan([experiment("table1")], "mini", tmp_path)
    second = plan([experiment("figure3")], "mini", tmp_path)
    assert len(both) < len(alone) + len(second)


def test_a_run_is_named_by_what_it_is_and_not_by_where_it_is(tmp_path):
    run = experiment("figure3").runs("small")[0]
    placed = place(run, tmp_path, tmp_path / "data")
    assert placed.data.root == str(tmp_path / "data" / "cifar10")
    moved = dataclasses.replace(placed, output=None)
    assert identity(moved) == identity(run)
    assert identity(dataclasses.replace(run, seed=7)) != identity(run)


def test_fine_tuning_waits_for_the_run_that_it_starts_from(tmp_path):
    work = plan([experiment("table5")], "mini", tmp_path)
    assert len(work.first) == 1
    weights = {run.model.weights for run in work.then}
    assert weights == {work.first[0].output}
    assert needs(experiment("table5").runs("mini")[-1]) is not None


def test_the_paper_scale_is_the_published_recipe():
    for cell in experiment("table2").cells("paper"):
        for run in cell.runs:
            assert run.data.train_size is None
            assert run.epochs == (300 if run.model.name == "pyramidnet110" else 200)
            assert run.base.weight_decay == (5e-4 if cell.method == "SGD" else 1e-3)
            radius = {"SGD": None, "ASAM": 4.0, "FisherSAM": 0.1}.get(cell.method, 0.2)
            assert run.method.rho == radius


def test_mini_fits_into_two_hours_of_a_core():
    runs = {run for row in EXPERIMENTS.values() for run in row.runs("mini")}
    tuned = [row.tuning for row in EXPERIMENTS.values() if row.tuning is not None]
    runs |= {run for tuning in tuned for run in tuning.expected_runs("mini")}
    assert estimate(runs, workers=1) < 120 * 60


def test_an_unknown_row_is_answered_with_the_nearest():
    with pytest.raises(LabError, match="did you mean figure3"):
        experiment("figure33")


def test_the_printed_numbers_have_their_source():
    assert "CVPR 2024" in source()
    table = printed("table6")
    assert table is not None
    assert table.rows[-1] == ("80 %", "27.86 ± 0.53", "31.73 ± 3.37", "59.39 ± 1.77")
    for name in ("table1", "table2", "table3", "table4", "table5", "table6", "figure3"):
        found = printed(name)
        assert found is not None
        assert all(len(row) == len(found.header) for row in found.rows)
    assert printed("figure4") is None
