from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from lab_runs import same

from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.training.checkpoints import (
    Checkpoints,
    DamagedCheckpointError,
    fingerprint,
    load_weights,
    read,
    write,
)


def _state(number: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(number)
    weights = {"w": torch.randn(50, 7, generator=generator), "n": torch.tensor(number)}
    return {"model": weights, "number": number, "list": [1.5, "text", None]}


def _saved(folder: Path, *steps: int, best: int | None = None) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(_state(step), step, best=step == best)
    return checkpoints


def _steps(folder: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("step-*.pt"))


def test_the_newest_is_read_and_one_is_kept_in_reserve(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "c").load() is None
    checkpoints = _saved(tmp_path / "c", 5, 10, 100_000_000)
    assert same(Checkpoints(tmp_path / "c").load(), _state(100_000_000))
    assert _steps(checkpoints.folder) == [10, 100_000_000]
    assert checkpoints.path("best") is None


def test_the_best_is_kept_however_old(tmp_path: Path) -> None:
    checkpoints = _saved(tmp_path, 1, 2, 3, 4, 5, best=2)
    assert _steps(tmp_path) == [2, 4, 5]
    resumed = Checkpoints(tmp_path)
    resumed.load()
    resumed.save(_state(6), 6)
    assert _steps(tmp_path) == [2, 5, 6]
    assert same(load_weights(str(resumed.path("best"))), _state(2)["model"])
    assert checkpoints.path("last") == resumed.path("last")


def test_plain_torch_reads_it(tmp_path: Path) -> None:
    assert same(torch.load(write(tmp_path, _state(1), 3), weights_only=True), _state(1))


def test_no_bit_flip_goes_unnoticed(tmp_path: Path) -> None:
    path = write(tmp_path, _state(1), 1)
    original, chance = path.read_bytes(), random.Random(0)
    directory = original.rindex(b"PK\x01\x02")  # torch itself trusts it, and reads anywhere
    places = [chance.randrange(len(original)) for _ in range(300)]
    for place in [*places, *range(directory, len(original))]:
        damaged = bytearray(original)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(DamagedCheckpointError, match="the checksum does not match"):
            read(path)
    for kept in (0, 1, 100, len(original) // 2, len(original) - 1):
        path.write_bytes(original[:kept])
        with pytest.raises(DamagedCheckpointError):
            read(path)


def test_nothing_is_unpickled_before_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, _state(1), 1)
    path.write_bytes(path.read_bytes() + b"\0")
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(DamagedCheckpointError, match="the checksum does not match"):
        read(path)


@pytest.mark.parametrize("how", ["flip", "other file", "folder", "unreadable"])
def test_whatever_cannot_be_read_sends_the_reader_to_the_one_before(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = _saved(tmp_path, 1, 2)
    last = checkpoints.path("last")
    assert last is not None
    raw = last.read_bytes()
    last.unlink()
    if how == "flip":
        last.write_bytes(raw[:200] + bytes([raw[200] ^ 1]) + raw[201:])
    elif how == "folder":
        last.mkdir()
    elif how == "unreadable":
        last.symlink_to("nowhere")
    else:
        last.write_text("not a checkpoint")
    again = Checkpoints(tmp_path)
    assert same(again.load(), _state(1))
    said = capsys.readouterr().out
    assert said.startswith(f"damaged: {last}; going on from ")
    assert said.count("\n") == 1
    again.settle()
    assert _steps(tmp_path) == [1]
    again.save(_state(2), 2)
    assert same(Checkpoints(tmp_path).load(), _state(2))
    assert _steps(tmp_path) == [1, 2]


def test_a_damaged_best_is_told_when_a_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = _saved(tmp_path, 1, 2, 3, best=1).path("best")
    assert best is not None
    best.write_bytes(b"nonsense")
    resumed = Checkpoints(tmp_path)
    assert same(resumed.load(), _state(3))
    said = capsys.readouterr().out
    assert said.startswith("damaged: the best checkpoint (step 1); going on from ")
    assert said.count("\n") == 1


def test_all_damaged_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    last = _saved(tmp_path, 1).path("last")
    assert last is not None
    last.write_bytes(b"nonsense")
    with pytest.raises(LabError, match=r"no checkpoint to resume from: .*\.pt damaged"):
        Checkpoints(tmp_path).load()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"last": 1, "best": null}'])
def test_a_damaged_index_is_one_line_and_mended_by_a_resumed_run(
    content: str, tmp_path: Path
) -> None:
    checkpoints = _saved(tmp_path / "checkpoints", 1, 2, best=1)
    (tmp_path / "checkpoints" / "index.json").write_text(content)
    with pytest.raises(LabError, match=r"index\.json is damaged"):
        load_weights(str(tmp_path))
    resumed = Checkpoints(checkpoints.folder)
    assert same(resumed.load(), _state(2))
    resumed.settle()
    assert same(load_weights(str(tmp_path)), _state(1)["model"])


def test_the_index_leads_nowhere_else(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    _saved(folder, 1)
    torch.save(_state(2), tmp_path / "other.pt")
    (folder / "index.json").write_text('{"last": "../../other.pt", "best": null}')
    with pytest.raises(LabError, match=r"index\.json is damaged"):
        load_weights(str(tmp_path / "run"))


def test_a_full_disk_is_one_line_and_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    script = """
import resource, sys, torch
from pathlib import Path
from friendly_sam.lab.training.checkpoints import Checkpoints
from friendly_sam.lab.errors import RunError
checkpoints = Checkpoints(Path(sys.argv[1]))
checkpoints.save({"number": 1}, 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    checkpoints.save({"number": 2, "model": torch.zeros(100_000)}, 2)
except RunError as error:
    print(error)
print(Checkpoints(Path(sys.argv[1])).load(), len(list(checkpoints.folder.iterdir())))
"""
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    message, rest = done.stdout.splitlines()
    assert message.startswith(f"cannot write checkpoint {tmp_path / 'step-00000002'}: ")
    assert message.endswith("File too large")
    assert rest == "{'number': 1} 2"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write checkpoint .*No such file"):
        write(tmp_path / "missing", _state(1), 1)


def test_weights_come_from_a_file_or_a_run(tmp_path: Path) -> None:
    checkpoints = _saved(tmp_path / "checkpoints", 1)
    assert load_weights(str(tmp_path)).keys() == {"w", "n"}
    assert same(load_weights(str(checkpoints.path("last"))), _state(1)["model"])
    torch.save(_state(2)["model"], tmp_path / "mine.pt")
    assert same(load_weights(str(tmp_path / "mine.pt")), _state(2)["model"])
    with pytest.raises(LabError, match="no checkpoint at"):
        load_weights(str(tmp_path / "nowhere"))


def test_a_run_of_0_1_gives_its_weights_and_is_not_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    torch.save(_state(1), folder / "last.pt")
    assert same(load_weights(str(tmp_path)), _state(1)["model"])
    with pytest.raises(LabError, match=r"last\.pt is of friendly-sam 0\.1.*--overwrite") as caught:
        Checkpoints(folder).load()
    assert "\n" not in str(caught.value)


def test_a_checkpoint_larger_than_the_memory_is_refused_unread(tmp_path: Path) -> None:
    last = _saved(tmp_path / "checkpoints", 1, 2).path("last")
    assert last is not None
    with last.open("r+b") as file:
        file.truncate(10 << 40)  # ten terabytes that take no room
    began = time.monotonic()
    with pytest.raises(LabError, match=r"has 11\.0 TB, this machine .* of memory"):
        load_weights(str(last))
    with pytest.raises(LabError, match=r"has 11\.0 TB, this machine .* of memory"):
        fingerprint(last)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert not checkpoints.complete()
    assert same(checkpoints.load(), _state(1))
    assert time.monotonic() - began < 5
