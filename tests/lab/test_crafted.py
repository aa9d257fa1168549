"""Checkpoints and measurements with right checksums and wrong contents: one line each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_runs import checkpoint, tiny_config

from friendly_sam.lab.cli import main
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.measured_once import measured_once
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.sharpness import landscape, spectrum
from friendly_sam.lab.sharpness.kept import read_spectrum
from friendly_sam.lab.training.checkpoints import write
from friendly_sam.lab.training.trainer import train


class Stop:
    def step(self, epoch: int, batch: int, batches: int) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    def epoch(self, metrics: dict[str, float]) -> None:
        pass


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.raises(KeyboardInterrupt):
        train(tiny_config(folder), listener=Stop())
    return folder


def put(*path: Any) -> Callable[[dict[str, Any]], Any]:
    """Put the last of the words where the others lead."""

    def change(state: dict[str, Any]) -> Any:
        place: Any = state
        for key in path[:-2]:
            place = place[key]
        place[path[-2]] = path[-1]
        return state

    return change


CRAFTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "list": lambda _: [1, 2],
    "empty": lambda _: {},
    "no config": put("config", None),
    "config list": put("config", [1]),
    "no processes": put("processes", None),
    "process number": put("processes", [1]),
    "process empty": put("processes", [{}]),
    "weights list": put("model", [1]),
    "weights number": put("model", {"a": 1}),
    "optimizer null": put("optimizer", None),
    "groups null": put("optimizer", "param_groups", None),
    "sums of another shape": put("processes", 0, "sums", torch.ones(7)),
    "count text": put("processes", 0, "count", "x"),
    "random numbers null": put("processes", 0, "rng", None),
    "position list": put("position", [1]),
    "position unknown": put("position", "more", 1),
    "epoch text": put("position", "epoch", "1"),
    "epoch beyond": put("position", "epoch", 10**9),
    "epoch negative": put("position", "epoch", -1),
    "batch null": put("position", "batch", None),
    "best text": put("position", "best", "x"),
    "seconds inf": put("position", "seconds", float("inf")),
    "metrics negative": put("position", "metrics", -5),
    "digest number": put("position", "digest", 3),
    "best step text": put("best_step", "x"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_checkpoint_is_one_line(
    name: str, cut: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(cut, run)
    state = torch.load(checkpoint(run), weights_only=True)
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    write(run / "checkpoints", CRAFTED[name](state), 4)
    capsys.readouterr()
    code = main(["train", "--resume", "--output", str(run)])
    told, said = capsys.readouterr()
    assert "internal error" not in said
    assert (code, said.count("\n")) == ((0, 0) if name == "best step text" else (2, 1))
    if name == "best step text":
        assert told.startswith("damaged: the best checkpoint (step x); going on from ")


def test_a_checkpoint_without_its_best_that_is_refused_is_still_one_line(
    cut: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(cut, run)
    state = torch.load(checkpoint(run), weights_only=True)
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    write(run / "checkpoints", put("best_step", 3)(put("processes", [1])(state)), 4)
    capsys.readouterr()
    assert main(["train", "--resume", "--output", str(run)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_in_the_place_of_a_measurement_is_refused_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "sharpness.json").mkdir()
    with pytest.raises(LabError, match=r"cannot write .*sharpness\.json: it is a folder"):
        measured_once(tmp_path / "sharpness.json", {}, lambda: pytest.fail("measured"))


def test_a_name_that_cannot_be_taken_is_told_by_that_name(
    cut: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.csv").mkdir()
    assert main(["report", str(cut), "--output", str(tmp_path / "page.html")]) == 2
    assert capsys.readouterr().err == f"fsam: error: {tmp_path / 'page.csv'}: Is a directory\n"


def test_the_table_of_a_report_replaces_no_record_of_a_run(
    cut: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(cut, run)
    before = (run / "status.json").read_bytes()
    assert main(["report", str(run), "--output", str(run / "status.html")]) == 2
    said = capsys.readouterr().err
    assert said.endswith(f"{run / 'status.json'} is a record of the run there\n")
    assert (run / "status.json").read_bytes() == before


def test_a_run_goes_on_whatever_its_environment_says(cut: Path, tmp_path: Path) -> None:
    shutil.copytree(cut, tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text('{"starts": 3}')
    assert main(["train", "--resume", "--output", str(tmp_path / "run")]) == 0
    assert len(read_run(tmp_path / "run").environment["starts"]) == 1


@pytest.mark.parametrize(
    ("module", "name"), [(spectrum, "sharpness.json"), (landscape, "landscape.json")]
)
def test_a_measurement_of_another_shape_is_made_again(
    module: Any, name: str, cut: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def measured(*_: object) -> dict[str, object]:
        made.append(1)
        return {"lambda1": "x", "rises": [1]}

    monkeypatch.setattr(module, "_measure", measured)
    for count in (1, 2):
        # What was kept has the right key, and text for a number.
        if name == "sharpness.json":
            spectrum.measure(cut, data_size=20)
        else:
            landscape.landscape(cut, rho=0.1, data_size=20)
        assert len(made) == count


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"lambda1": "x"}', "lambda1 holds text, not a number"),
        ('{"ratio": null}', "ratio holds null, not a number"),
        ('{"density": [1]}', "density holds a list, not a mapping"),
        ('{"density": {"x": [0, 1], "y": ["a"]}}', r"density.y\[0\] holds text"),
        ('{"density": {"x": [0, 1], "y": [1]}}', "its density cannot be drawn"),
        ('{"density": {"x": [1, 0], "y": [1, 1]}}', "its density cannot be drawn"),
        ('{"density": {"x": [0, 1], "y": [1, NaN]}}', "its density cannot be drawn"),
        ('{"density": {"x": [0, 1], "y": [1, 1], "width": "x"}}', "its density cannot be drawn"),
        ('{"lambda1": ' + "9" * 400 + "}", "an integer of 400 digits"),
    ],
)
def test_a_spectrum_of_another_shape_is_named(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "sharpness.json").write_text(text)
    with pytest.raises(LabError, match=f"sharpness.json is damaged: {reason}"):
        read_spectrum(tmp_path / "sharpness.json")
