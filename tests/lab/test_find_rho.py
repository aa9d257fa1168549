"""`fsam find-rho`: every candidate half-way, the best to its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_runs import Tiny, final_state, same

from friendly_sam.lab.cli import main
from friendly_sam.lab.cli.find_rho import find_rho
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.training.trainer import train

VALIDATED = {"validation_size": 100, "label_noise": 0.4}


def test_the_best_half_way_is_finished_and_the_others_can_go_on(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny(epochs=6, data=VALIDATED, engine={"checkpoint_epochs": 0})
    best = find_rho(config, (0.1, 50.0, 0.2), tmp_path / "found")
    assert best in (0.1, 0.2), "nothing is learnt at radius 50"
    out = capsys.readouterr().out
    assert "validation after 3 epochs" in out
    assert ("at the edge" in out) == (best == 0.1)
    for rho in (0.1, 0.2, 50.0):
        run = read_run(tmp_path / "found" / f"rho{rho:g}")
        assert run.finished == (rho == best)
        assert len(run.metrics) == (6 if rho == best else 3)
    alone = tiny("alone", epochs=6, data=VALIDATED, method={"name": "fsam", "rho": best})
    assert same(final_state(tmp_path / "found" / f"rho{best:g}"), final_state(train(alone)))
    capsys.readouterr()
    assert find_rho(config, (0.1, 50.0, 0.2), tmp_path / "found") == best, "nothing is done twice"


@pytest.mark.parametrize(
    ("settings", "radii", "message"),
    [
        ({"method": {"name": "base"}}, (0.1, 0.2), "method.name is base, which has no radius"),
        ({"data": {}}, (0.1, 0.2), "data.validation_size is 0"),
        ({"epochs": 1}, (0.1, 0.2), "epochs must be at least 2"),
        ({}, (0.1,), "--radii must be two or more different numbers above 0"),
        ({}, (0.1, -1.0), "--radii must be two or more different numbers above 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    settings: dict[str, object], radii: tuple[float, ...], message: str, tiny: Tiny, tmp_path: Path
) -> None:
    with pytest.raises(LabError, match=message.replace(".", r"\.")):
        find_rho(tiny(**{"data": VALIDATED, **settings}), radii, tmp_path / "found")
    assert not (tmp_path / "found").exists()


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find-rho", "--preset", "digits-mlp-fsam"]) == 2
    assert "data.validation_size is 0" in capsys.readouterr().err
    assert main(["find-rho", "--radii", "x"]) == 2
    assert "--radii" in capsys.readouterr().err
