"""Decomposition as a metric: there when asked for, and training does not notice."""

import pytest
from lab_runs import final_state, same, tiny_config

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.training.trainer import train


@pytest.mark.parametrize("method", ["fsam", "sam"])
def test_a_run_with_the_log_is_the_run_without(tmp_path, method):
    plain = tiny_config(tmp_path / "plain", model="cnn", method={"name": method}, epochs=3)
    logged = tiny_config(
        tmp_path / "logged", model="cnn", method={"name": method}, epochs=3,
        engine={"decomposition": 2},
    )  # fmt: skip
    train(plain)
    train(logged)
    assert same(final_state(plain.output), final_state(logged.output))
    metrics = read_run(tmp_path / "logged").metrics
    there = ["decomposition_full_share" in line for line in metrics]
    assert there == [False, True, False]
    found = metrics[1]
    assert 0 <= found["decomposition_full_share"] <= 1
    assert found["decomposition_full_norm"] > 0
    assert ("decomposition_average_error" in found) == (method == "fsam")


def test_a_method_without_a_perturbation_is_told(tmp_path):
    config = tiny_config(
        tmp_path / "run", method={"name": "base"}, engine={"decomposition": 1}
    )  # fmt: skip
    with pytest.raises(LabError, match="needs a method that perturbs"):
        train(config)
