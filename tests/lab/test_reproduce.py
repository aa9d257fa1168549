"""`fsam reproduce` from end to end, on tiny runs."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import small_experiments
from small_experiments import metrics

from friendly_sam.lab.cli import main
from friendly_sam.lab.data import load
from friendly_sam.lab.records.run import run_state


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder in which two experiments are finished."""
    output: Path = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        small_experiments.shrink(patch)
        assert _reproduce(output, "figure3", "decay") == 0
    return output / "mini"


@pytest.fixture
def copy(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a copy of it that a test may damage."""
    small_experiments.shrink(monkeypatch)
    shutil.copytree(done, tmp_path / "mini")
    return tmp_path / "mini"


def _reproduce(output: Path, *names: str) -> int:
    return main(["reproduce", *names, "--output", str(output), "--workers", "1"])


class _Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.add(tag)
        if "id" in values:
            self.ids.append(values["id"])
        self.links += [values[k] for k in ("href", "src", "xlink:href") if values.get(k)]


def test_the_page_is_whole_and_asks_nobody(done):
    text = (done / "index.html").read_text(encoding="utf-8")
    outline = _Outline()
    outline.feed(text)
    assert len(outline.ids) == len(set(outline.ids)), "an id twice"
    assert all(link.startswith(("#", "data:")) for link in outline.links)
    inner = {link[1:] for link in outline.links if link.startswith("#")}
    assert inner <= set(outline.ids), "a link that leads nowhere"
    assert "script" not in outline.tags
    assert "svg" in outline.tags
    for word in ("url(http", "@import"):
        assert word not in text
    for word in ("figure3", "80.88", "F-SAM is less sensitive", "n = 3", "fsam reproduce figure3"):
        assert word in text


def test_figures_and_markdown_stand_beside_the_page(done):
    for kind in ("svg", "png", "pdf"):
        assert (done / "figures" / f"figure3.{kind}").stat().st_size > 1000
    text = (done / "results.md").read_text(encoding="utf-8")
    assert "![Robustness to the radius](figures/figure3.svg)" in text
    assert "undecided at n = 3" in text or "holds, n = 3" in text or "does not hold" in text


def test_every_number_names_its_records(done):
    text = (done / "index.html").read_text(encoding="utf-8")
    folders = [path.name for path in (done / "runs").iterdir() if "-seed100" not in path.name]
    assert folders, "all but those of the search, whose seeds are 1000 and 1001"
    assert all(name in text for name in folders)


def test_a_second_time_nothing_is_done_again(copy, capsys):
    before = {p: p.stat().st_mtime_ns for p in (copy / "runs").rglob("metrics.jsonl")}
    assert _reproduce(copy.parent, "figure3", "decay") == 0
    after = {p: p.stat().st_mtime_ns for p in (copy / "runs").rglob("metrics.jsonl")}
    assert before == after


def test_a_run_that_was_cut_off_comes_to_the_same_numbers(copy, done):
    victim = next(iter(sorted((copy / "runs").iterdir())))
    shutil.rmtree(victim / "checkpoints")
    status = json.loads((victim / "status.json").read_text())
    (victim / "status.json").write_text(json.dumps(status | {"state": "running"}))
    (victim / "metrics.jsonl").write_bytes((victim / "metrics.jsonl").read_bytes()[:10])
    assert _reproduce(copy.parent, "figure3", "decay") == 0
    assert run_state(victim) == "finished"
    assert metrics(copy / "runs") == metrics(done / "runs")


def test_a_damaged_record_is_told_in_one_line_and_left_alone(copy, capsys):
    victim = next(iter(sorted((copy / "runs").iterdir())))
    (victim / "metrics.jsonl").write_text("{broken\n")
    assert _reproduce(copy.parent, "figure3", "decay") == 1
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    assert "metrics.jsonl is damaged: it is not what the finished run wrote" in error
    assert (victim / "metrics.jsonl").read_text() == "{broken\n"
    assert "1 of " in (copy / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "row",
    ["[1]", "3", '{"seeds": "x"}', '{"seeds": 1000000000}', '{"seeds": -1}', '{"command": 1}'],
)
def test_a_list_of_requests_of_another_shape_is_one_line(row, tmp_path, capsys):
    text = f'{{"scale": "mini", "rows": {{"table1": {row}}}}}'
    (tmp_path / "reproduce.json").write_text(text)
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "reproduce.json is damaged; delete it and start again" in error
    assert error.count("\n") == 1


def test_a_folder_with_foreign_files_is_refused_and_kept(tmp_path, capsys):
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "thesis.tex").write_text("years of work")
    assert _reproduce(tmp_path, "figure3") == 2
    error = capsys.readouterr().err
    assert "did not write" in error
    assert error.count("\n") == 1
    assert [p.name for p in (tmp_path / "mini").iterdir()] == ["thesis.tex"]


def test_no_space_left_is_one_line_and_loses_no_run(copy, capsys, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    before = metrics(copy / "runs")
    monkeypatch.setattr("friendly_sam.lab.paper.chapters.write.write_atomically", full)
    assert _reproduce(copy.parent, "figure3", "decay") == 1
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert error.count("\n") == 1
    assert metrics(copy / "runs") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["figure9"], "unknown experiment 'figure9'"),
        (
            ["figure3", "--scale", "huge"],
            "unknown scale 'huge': choose from paper, real, medium",
        ),
        ([], "name at least one experiment"),
        (["figure3", "--seeds", "0"], "--seeds must be at least 1"),
        (["figure3", "--data-root", "/nowhere"], "--data-root /nowhere is not a folder"),
        (["figure3", "--cluster", "moon"], "--cluster"),
        (["--list", "--scale", "tiny"], "unknown scale 'tiny'"),
    ],
)
def test_bad_input_is_one_line(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_data_that_is_missing_is_told_once_and_before_any_run(tmp_path, capsys, monkeypatch):
    asked = []

    def unreachable(name):
        asked.append(name)
        raise OSError(f"cannot load {name!r} from the hub")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[load.__module__], "open_hub", unreachable)
    assert main(["reproduce", "table1", "table6", "--scale", "small"]) == 1
    assert asked == ["uoft-cs/cifar10"]
    assert main(["reproduce", "table1", "--scale", "small", "--data-root", str(tmp_path)]) == 2
    hub, folder = capsys.readouterr().err.splitlines()
    assert "cannot load" in hub
    assert f"no data folder '{tmp_path / 'cifar10'}'" in folder
    assert not list(tmp_path.iterdir())


def test_a_pretrained_network_that_is_missing_is_told_before_any_run(tmp_path, capsys, monkeypatch):
    def missing():
        raise ImportError("efficientnet_lite0 needs its ImageNet weights")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("friendly_sam.lab.models.efficientnet_lite._read_weights", missing)
    monkeypatch.setattr("friendly_sam.lab.paper.inputs.open_data", lambda name, root: {})
    assert main(["reproduce", "table5", "--scale", "real"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs its ImageNet weights" in line
    assert not list(tmp_path.iterdir())


def test_data_is_not_asked_for_where_nothing_is_left_to_run(copy, monkeypatch):
    def gone(name, root=None):
        raise AssertionError(f"{name} is not needed")

    monkeypatch.setattr("friendly_sam.lab.paper.inputs.open_data", gone)
    assert _reproduce(copy.parent, "figure3", "decay") == 0


def test_the_list_tells_runs_and_times(capsys):
    assert main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    assert "ascent-fraction" in out
    assert "Robustness to the radius" in out


def test_report_of_such_a_folder_writes_the_page_again(copy, capsys):
    (copy / "index.html").unlink()
    assert main(["report", str(copy)]) == 0
    assert (copy / "index.html").is_file()


def test_the_help_has_an_example():
    command = [sys.executable, "-m", "friendly_sam.lab", "reproduce", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "fsam reproduce all --scale mini" in done.stdout
