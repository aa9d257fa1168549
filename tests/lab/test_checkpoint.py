from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lab_runs import same

from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.training.checkpoints import (
    Checkpoints,
    DamagedCheckpointError,
    load_weights,
    read,
    write,
)


def _state(number: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(number)
    weights = {"w": torch.randn(50, 7, generator=generator), "n": torch.tensor(number)}
    return {"model": weights, "number": number, "list": [1.5, "text", None]}


def test_the_newest_is_read_and_one_is_kept_in_reserve(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.load() is None
    for number in range(3):
        checkpoints.save(_state(number))
    assert same(checkpoints.load(), _state(2))
    assert same(read(checkpoints.previous), _state(1))
    assert sorted(p.name for p in checkpoints.folder.iterdir()) == ["last.pt", "previous.pt"]


def test_plain_torch_reads_it(tmp_path: Path) -> None:
    write(tmp_path / "a.pt", _state(1))
    assert same(torch.load(tmp_path / "a.pt", weights_only=True), _state(1))


def test_no_bit_flip_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    write(path, _state(1))
    original, chance = path.read_bytes(), random.Random(0)
    noticed = 0
    for _ in range(300):
        damaged = bytearray(original)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            state = read(path)
        except DamagedCheckpointError:
            noticed += 1
        else:
            assert same(state, _state(1))  # padding between records: nothing was lost
    assert noticed > 100
    for kept in (0, 1, 100, len(original) // 2, len(original) - 1):
        path.write_bytes(original[:kept])
        with pytest.raises(DamagedCheckpointError):
            read(path)


def test_a_flipped_weight_sends_the_reader_to_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(_state(1))
    checkpoints.save(_state(2))
    raw = bytearray(checkpoints.last.read_bytes())
    weight = torch.randn(50, 7, generator=torch.Generator().manual_seed(2)).numpy().tobytes()
    raw[raw.index(weight[:32])] ^= 1
    checkpoints.last.write_bytes(raw)
    assert not same(torch.load(checkpoints.last), _state(2))  # torch itself does not notice
    with pytest.warns(UserWarning, match="damaged, going back to the one before"):
        assert same(checkpoints.load(), _state(1))


def test_all_damaged_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(_state(1))
    checkpoints.last.write_bytes(b"nonsense")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(LabError, match=r"no checkpoint to resume from: .*last.pt damaged"),
    ):
        checkpoints.load()


@pytest.mark.parametrize("cut", [1, 2])
def test_death_between_the_renames_loses_nothing(
    cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(_state(1))
    checkpoints.save(_state(2))
    calls, original = 0, Path.replace

    def replace(self: Path, target: Path) -> Path:
        nonlocal calls
        if calls == cut:
            raise KeyboardInterrupt
        calls += 1
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(_state(3))
    monkeypatch.undo()
    assert same(checkpoints.load(), _state(3))
    checkpoints.save(_state(4))
    assert same(checkpoints.load(), _state(4))


def test_a_full_disk_is_one_line_and_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    script = """
import resource, sys, torch
from pathlib import Path
from friendly_sam.lab.training.checkpoints import Checkpoints
from friendly_sam.lab.errors import RunError
checkpoints = Checkpoints(Path(sys.argv[1]))
checkpoints.save({"number": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    checkpoints.save({"number": 2, "model": torch.zeros(100_000)})
except RunError as error:
    print(error)
print(checkpoints.load(), sorted(path.name for path in checkpoints.folder.iterdir()))
"""
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    message, rest = done.stdout.splitlines()
    assert message.startswith("cannot write checkpoint")
    assert message.endswith("File too large")
    assert rest == "{'number': 1} ['last.pt']"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write checkpoint .*No such file"):
        write(tmp_path / "missing" / "a.pt", _state(1))


def test_weights_come_from_a_file_or_a_run(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(_state(1))
    assert load_weights(str(tmp_path)).keys() == {"w", "n"}
    assert same(load_weights(str(checkpoints.last)), _state(1)["model"])
    with pytest.raises(LabError, match="no checkpoint at"):
        load_weights(str(tmp_path / "nowhere"))
