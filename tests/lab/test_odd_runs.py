"""Runs as they may be found: named after formulas, without metrics, where nobody may write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from lab_runs import tiny_config

from friendly_sam.lab import files
from friendly_sam.lab.cli import main
from friendly_sam.lab.report.finding import find_runs
from friendly_sam.lab.report.runs import compare, runs_page
from friendly_sam.lab.training.trainer import train

FORMULA = r"$\frac{$"
SMALL = ("--images", "20", "--grid", "3", "--tolerance", "0.5")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train one run, short enough for a test."""
    torch.set_num_threads(1)
    return train(tiny_config(tmp_path_factory.mktemp("runs") / "run", epochs=1))


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """Copy the run; its settings and metrics may be changed."""
    shutil.copytree(trained, tmp_path / "other")
    shutil.copytree(trained, tmp_path / FORMULA)
    (tmp_path / FORMULA / "status.json").write_text(json.dumps({"state": "finished"}))
    return tmp_path / FORMULA


def _change_settings(run: Path) -> None:
    """Give a run settings that a legend quotes."""
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("  weights: null", f"  weights: '{FORMULA}'"))


@pytest.mark.parametrize("command", ["report", "sharpness"])
def test_a_name_that_looks_like_a_formula_is_drawn_as_it_is(
    command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = run.parent / "page.html"
    if command == "report":
        _change_settings(run)
    more = SMALL if command == "sharpness" else ()
    code = main([command, str(run), str(run.parent / "other"), *more, "--output", str(page)])
    assert (code, capsys.readouterr().err) == (0, "")
    assert FORMULA in page.read_text()


@pytest.mark.parametrize("content", ["", None])
def test_a_report_of_a_run_without_metrics_is_one_line(
    content: str | None, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "metrics.jsonl").unlink() if content is None else (run / "metrics.jsonl").write_text("")
    assert main(["report", str(run), "--output", str(run.parent / "page.html")]) == 2
    line = "fsam: error: none of these runs has finished an epoch yet\n"
    assert capsys.readouterr() == ("", line)


def test_runs_are_found_beside_folders_nested_without_end(run: Path, tmp_path: Path) -> None:
    os.mkdir(tmp_path / "d")
    handle = os.open(tmp_path / "d", os.O_RDONLY)
    for _ in range(1500):  # more than Python calls itself
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    try:
        assert {found.folder for found in find_runs([tmp_path]).runs} == {run, tmp_path / "other"}
    finally:
        subprocess.run(["rm", "-r", str(tmp_path / "d")], check=True)  # shutil calls itself


@pytest.mark.parametrize(("epochs", "drawn"), [(1, 1), (2, 2), (999, 999), (50_000, 1001)])
def test_a_curve_of_many_epochs_is_drawn_with_fewer_points(
    epochs: int, drawn: int, run: Path
) -> None:
    line = json.loads((run / "metrics.jsonl").read_text())
    lines = [json.dumps(line | {"epoch": epoch + 1}) for epoch in range(epochs)]
    (run / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    page = runs_page(compare(find_runs([run]).runs), "")
    charts = [section.chart for section in page.sections if section.chart is not None]
    assert charts
    for chart in charts:
        (series,) = chart.series
        assert (len(series.x), len(series.y)) == (drawn, drawn)
        assert (series.x[0], series.x[-1]) == (1, epochs)


def _forbid_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a folder be read-only, for root too."""
    allowed = os.access
    monkeypatch.setattr(
        files.os, "access", lambda path, mode: path != folder and allowed(path, mode)
    )


def test_a_read_only_run_is_refused_before_its_sharpness_is_measured(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _forbid_writing(run, monkeypatch)
    monkeypatch.setattr("friendly_sam.lab.sharpness.spectrum.subject", None)  # nothing is measured
    page = str(run.parent / "page.html")
    assert main(["sharpness", str(run.parent / "other"), str(run), *SMALL, "--output", page]) == 2
    line = f"fsam: error: cannot write to output folder {run}: no permission in {run}\n"
    assert capsys.readouterr().err == line
