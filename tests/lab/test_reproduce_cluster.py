"""The same runs through submitit, with its local executor."""

from __future__ import annotations

import sys

import pytest

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import run_state
from friendly_sam.lab.runner.cluster import _settings, run_on_cluster


def test_jobs_do_what_workers_do_and_one_that_fails_is_told(tiny, tmp_path, capsys):
    pytest.importorskip("submitit")
    runs = [tiny("wrong", model="no-such-network"), tiny("right")]
    for _ in range(2):  # the second time only the failed one is submitted
        wrong, right = run_on_cluster(runs, tmp_path / "jobs", "local")
        assert "unknown model" in str(wrong.error)
        assert right.error is None
        assert run_state(right.folder) == "finished"
    assert "1 run finished already, submitting 1" in capsys.readouterr().out


def test_without_submitit_the_way_out_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(LabError, match="pip install submitit"):
        run_on_cluster([], tmp_path, "slurm")


def test_settings_are_pairs():
    assert _settings(["partition=gpu", "gpus_per_node=1"]) == {
        "slurm_partition": "gpu",
        "gpus_per_node": 1,
    }
    with pytest.raises(LabError, match="KEY=VALUE"):
        _settings(["partition"])
