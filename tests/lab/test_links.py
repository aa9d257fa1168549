"""A run's folder from somebody else: nothing in it makes the lab write outside."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from lab_runs import tiny_config

import friendly_sam.lab
from friendly_sam.lab.cli import main
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import (
    DRAFT,
    draft,
    make_folder,
    open_to_append,
    publish,
    write_atomically,
)
from friendly_sam.lab.records.claim import LOCK
from friendly_sam.lab.records.events import Events
from friendly_sam.lab.records.measured_once import measured_once
from friendly_sam.lab.training.trainer import train

SECRET = "alias ls=ls\n"
RECORDS = ("config.yaml", "status.json", "environment.json", "metrics.jsonl", "sharpness.json",
           "landscape.json", "checkpoints/index.json")  # fmt: skip
OLD_DRAFTS = (
    *(f"{Path(name).parent}/.{Path(name).name}.draft" for name in RECORDS),
    *(f"checkpoints/{name}.pt" for name in ("next", "last", "best", "previous", ".next.pt.draft")),
    f"{DRAFT}0123",
    f"checkpoints/{DRAFT}0123",
)


class Stop:
    def step(self, epoch: int, batch: int, batches: int) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    def epoch(self, metrics: dict[str, float]) -> None:
        pass


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "home" / ".bashrc"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    with pytest.raises(KeyboardInterrupt):
        train(tiny_config(tmp_path / "run"), listener=Stop())
    return tmp_path / "run"


def commands(run: Path, page: Path) -> list[list[str]]:
    return [
        ["train", "--resume", "--output", str(run)],
        ["sharpness", str(run), "--images", "10", "--grid", "3", "--output", str(page)],
        ["report", str(run), "--output", str(page)],
    ]


def test_files_that_are_links_are_never_written_through(
    cut: Path, victim: Path, tmp_path: Path
) -> None:
    for name in OLD_DRAFTS:
        (cut / name).symlink_to(victim)
    page = tmp_path / "page" / "page.html"
    page.parent.mkdir()
    for name in ("page.html", ".page.html.draft", "page.png", ".page.png.draft"):
        (page.parent / name).symlink_to(victim)
    for name in ("sharpness.json", "landscape.json"):
        measured_once(cut / name, {}, lambda: {"found": 1})
    for command in commands(cut, page):
        assert command[0] == "sharpness" or main(command) == 0
    assert victim.read_text() == SECRET
    assert list(victim.parent.iterdir()) == [victim]
    assert not page.is_symlink()


@pytest.mark.parametrize("name", [*RECORDS, LOCK])
def test_a_record_that_is_a_link_is_replaced_or_refused(
    name: str, cut: Path, victim: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = victim.parent / "copy"
    if (cut / name).exists():
        copy.write_bytes((cut / name).read_bytes())
        (cut / name).unlink()
    target = copy if copy.exists() and name != LOCK else victim
    (cut / name).symlink_to(target)
    before = target.read_bytes()
    capsys.readouterr()
    code = main(["train", "--resume", "--output", str(cut)])
    assert code in (0, 2)
    assert capsys.readouterr().err.count("\n") == (code != 0)
    assert target.read_bytes() == before
    assert victim.read_text() == SECRET
    assert (
        code == 2 or not (cut / name).is_symlink() or name in ("sharpness.json", "landscape.json")
    )


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_a_folder_that_is_a_link_is_refused_in_one_line(
    name: str, cut: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if (cut / name).exists():
        (cut / name).rename(elsewhere)
    else:
        elsewhere.mkdir()
    (cut / name).symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    for command in commands(cut, tmp_path / "page.html")[: 2 if name == "checkpoints" else 1]:
        capsys.readouterr()
        assert (
            main([*command, *(["--engine.tensorboard", "true"] if command[0] == "train" else [])])
            == 2
        )
        said = capsys.readouterr().err.splitlines()
        assert f"{cut / name} is a link, which is not followed" in said[-1]
        assert len([line for line in said if line.startswith("fsam: error")]) == 1
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_strange_lock_is_one_line_and_no_wait(kind: str, cut: Path, victim: Path) -> None:
    (cut / LOCK).unlink()
    make: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to(victim),
        "fifo": lambda path: os.mkfifo(path),
        "folder": lambda path: path.mkdir(),
    }
    make[kind](cut / LOCK)
    assert main(["train", "--resume", "--output", str(cut)]) in (1, 2)
    assert victim.read_text() == SECRET


def test_a_run_folder_that_is_a_link_is_refused(cut: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(cut)
    with pytest.raises(LabError, match="linked is a link, which is not followed"):
        train(tiny_config(tmp_path / "linked"), resume=True)


def test_a_draft_is_gone_unless_it_was_published(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), draft(tmp_path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with draft(tmp_path) as file:
        file.write(b"whole")
        publish(file, tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_draft_of_a_name_that_was_guessed_is_not_opened(
    victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("friendly_sam.lab.files.secrets.token_hex", lambda _: "guessed")
    (tmp_path / f"{DRAFT}guessed").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "status.json", "code")
    assert victim.read_text() == SECRET


def test_drafts_of_the_dead_are_swept_up_and_those_of_the_living_stay(tmp_path: Path) -> None:
    (tmp_path / f"{DRAFT}dead").write_text("half")
    with draft(tmp_path) as file:
        file.write(b"whole")
        write_atomically(tmp_path / "other", "text")
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {"other", Path(file.name).name}
        publish(file, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_a_new_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_atomically(tmp_path / "page.html", "text")
    finally:
        os.umask(old)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o644


def test_folders_and_files_to_append_to_follow_no_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(LabError, match="is a link, which is not followed"):
        make_folder(tmp_path / "link")
    with pytest.raises(LabError, match="is a link, which is not followed"):
        open_to_append(tmp_path / "link")
    assert not (tmp_path / "target").exists()


LAB = Path(friendly_sam.lab.__file__).parent
WRITES = {"write_text", "write_bytes", "savefig", "rmtree", "symlink_to", "rename", "touch"}
ALLOWED = {"files.py", "bench/processes.py"}  # the latter writes to a temporary folder of its own


@pytest.mark.parametrize("path", sorted(LAB.rglob("*.py")), ids=lambda p: str(p.relative_to(LAB)))
def test_all_writers_of_the_lab_go_through_one_file(path: Path) -> None:
    if str(path.relative_to(LAB)) in ALLOWED:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        modes = [a.value for a in node.args if isinstance(a, ast.Constant) and type(a.value) is str]
        to_buffer = name == "savefig" and ast.unparse(node.args[0]) == "buffer"
        to_system = ast.unparse(node).startswith(("open('/proc/", "open(os.devnull,"))
        assert name not in WRITES or to_buffer, ast.unparse(node)
        opens = name == "open" and any(set(mode) & set("wax+") and len(mode) < 4 for mode in modes)
        assert not opens or to_system, ast.unparse(node)


def test_overwrite_deletes_links_and_not_what_they_lead_to(cut: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (cut / "checkpoints").rename(elsewhere)
    (cut / "checkpoints").symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    train(tiny_config(cut, epochs=1), overwrite=True)
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before
    assert not (cut / "checkpoints").is_symlink()


def test_output_at_a_dangling_link_or_below_a_file_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").write_text("mine")
    for name, reason in (
        ("dangling", "dangling is a link, which is not followed"),
        ("dangling/run", "dangling is a link to nothing"),
        ("file/run", "is below .*file, a file, not a folder"),
    ):
        with pytest.raises(LabError, match=reason):
            train(tiny_config(tmp_path / name))
    assert not (tmp_path / "nowhere").exists()


def test_a_fifo_with_a_reader_and_a_linked_folder_of_events_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)  # so that it can be opened
    with pytest.raises(LabError, match="fifo is not a regular file"):
        open_to_append(tmp_path / "fifo")
    os.close(reader)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tensorboard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LabError, match="tensorboard is a link, which is not followed"):
        Events(tmp_path / "tensorboard", 0)
    assert not list((tmp_path / "elsewhere").iterdir())
