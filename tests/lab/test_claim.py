"""Lock first, look under the lock, delete only what is ours."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from lab_runs import Tiny, checkpoint, final_state, same

from friendly_sam.lab.cli import demo, demo_folder, main
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.claim import LOCK, claimed
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.training import trainer
from friendly_sam.lab.training.trainer import train


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_two_processes_cannot_hold_one_folder(tmp_path: Path) -> None:
    with claimed(tmp_path / "run"):
        with pytest.raises(LabError, match="another process is writing"), claimed(tmp_path / "run"):
            pass
        assert (tmp_path / "run" / LOCK).exists()
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_a_slow_start_keeps_others_out_from_its_first_moment(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, loading, go_on = tiny(), threading.Event(), threading.Event()
    original = trainer.load_data

    def slow(config: RunConfig) -> object:
        if threading.current_thread() is not threading.main_thread():
            loading.set()
            assert go_on.wait(60)
        return original(config)

    monkeypatch.setattr(trainer, "load_data", slow)
    first = threading.Thread(target=lambda: train(config))
    first.start()
    assert loading.wait(60)  # the folder is still empty but for the lock
    with pytest.raises(LabError, match="another process is writing"):
        train(config)
    go_on.set()
    first.join()
    folder = Path(str(config.output))
    finished = contents(folder)
    with pytest.raises(LabError, match="already holds a finished run"):
        train(config)
    assert contents(folder) == finished


@pytest.mark.parametrize("missing", [["status.json"], ["config.yaml"], ["status.json", LOCK]])
def test_a_run_that_lost_a_record_is_not_overwritten(missing: list[str], tiny: Tiny) -> None:
    config = tiny()
    folder = train(config)
    wanted = final_state(folder)
    for name in missing:
        (folder / name).unlink()
    before = contents(folder)
    refusal = r"already holds an unfinished run|is not empty and holds no run"
    with pytest.raises(LabError, match=refusal):
        train(config)
    assert contents(folder) == before
    if LOCK not in missing:
        assert read_run(train(config, resume=True)).finished
        assert same(final_state(folder), wanted)


def test_overwrite_replaces_a_run_and_leaves_what_is_not_ours(tiny: Tiny) -> None:
    folder = train(tiny(seed=1))
    (folder / "notes.txt").write_text("mine")
    (folder / "sharpness.json").write_text("{}")
    wanted = final_state(train(tiny("alone", seed=2)))
    train(tiny(seed=2), overwrite=True)
    assert same(final_state(folder), wanted)
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "sharpness.json").exists()
    assert len(read_run(folder).environment["starts"]) == 1


def test_overwrite_deletes_nothing_before_the_new_run_can_start(tiny: Tiny) -> None:
    folder = train(tiny())
    before = contents(folder)
    with pytest.raises(LabError, match="batch_size"):
        train(tiny(data={"batch_size": 251}), overwrite=True)
    assert contents(folder) == before


@pytest.mark.parametrize("names", [["thesis.tex"], ["config.yaml", "status.json"]])
def test_overwrite_refuses_a_folder_without_our_mark(
    names: list[str], tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    for name in names:
        (tmp_path / "mine" / name).write_text("years of work")
    before = contents(tmp_path)
    with pytest.raises(LabError, match="is not empty and holds no run"):
        train(tiny("mine"), overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("words", [[], ["--preset", "digits-mlp-fsam"]])
def test_resume_without_a_run_is_one_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--resume", "--output", str(tmp_path / "WRONG")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fsam: error: --resume: there is no run in {tmp_path / 'WRONG'}")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_resume_and_overwrite_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "--overwrite", "--output", "x"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_a_finished_run_gets_damaged_final_weights_back(tiny: Tiny) -> None:
    config = tiny(engine={"checkpoint_steps": 1})
    folder = train(config)
    wanted, last = final_state(folder), checkpoint(folder)
    last.write_bytes(last.read_bytes()[:-1])
    assert read_run(train(config, resume=True)).finished
    assert same(final_state(folder), wanted)
    shutil.rmtree(folder / "checkpoints")  # deleted to save room: nothing is trained again
    before = contents(folder)
    train(config, resume=True)
    assert contents(folder) == before


def test_a_fresh_demo_deletes_runs_of_demos_and_no_others(tiny: Tiny, tmp_path: Path) -> None:
    runs = [demo._config(tmp_path, *key, epochs=1) for key in demo._keys(1, [0.2])]
    first = Path(str(runs[0].output)).name.removesuffix("0")
    mine = train(tiny("runs/mine"))
    before = contents(mine)
    assert demo_folder.claim(tmp_path, runs, fresh=True) == 0
    for run in runs:
        train(run)
    assert demo_folder.claim(tmp_path, runs, fresh=False) == len(runs)
    copy = tmp_path / "runs" / f"{first}7"
    shutil.copytree(tmp_path / "runs" / f"{first}0", copy)
    assert demo_folder.claim(tmp_path, runs[:1], fresh=True) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["mine", f"{first}7"]
    assert contents(mine) == before
    more = [demo._config(tmp_path, *key, epochs=1) for key in demo._keys(8, [0.2])]
    with pytest.raises(LabError, match=f"{first}7 is no run of this demo"):
        demo_folder.claim(tmp_path, more, fresh=True)
    assert copy.is_dir()


def test_a_fresh_demo_deletes_nothing_behind_a_link(tiny: Tiny, tmp_path: Path) -> None:
    runs = [demo._config(tmp_path / "demo", *key, epochs=1) for key in demo._keys(1, [0.2])]
    name = Path(str(runs[0].output)).name
    mine = train(tiny(f"mine/{name}"))
    before = contents(mine)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "runs").symlink_to(mine.parent)
    (tmp_path / "demo" / demo_folder.MARK).write_text(json.dumps({"runs": [name]}))
    with pytest.raises(LabError, match="runs is a link, which is not followed"):
        demo_folder.claim(tmp_path / "demo", runs, fresh=True)
    assert contents(mine) == before


def test_a_run_killed_before_its_last_checkpoint_had_a_name_ends_with_it(tiny: Tiny) -> None:
    config = tiny()
    folder = train(config)
    last, wanted = checkpoint(folder), final_state(folder)
    index = folder / "checkpoints" / "index.json"
    names = sorted(path.name for path in last.parent.glob("step-*.pt"))
    index.write_text(json.dumps({"last": names[0], "best": names[0]}))
    (folder / "status.json").write_text(json.dumps({"state": "running"}))
    train(config, resume=True)
    assert checkpoint(folder) == last
    assert same(final_state(folder), wanted)
