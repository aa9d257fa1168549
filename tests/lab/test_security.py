"""SECURITY.md, held: what is not trusted runs no code, stays in its folder, ends in one line."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_runs import Tiny

from friendly_sam.lab import memory
from friendly_sam.lab.cli import main
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.models import MODELS
from friendly_sam.lab.models.estimate import GROWTH, check_memory, count_outputs, count_weights
from friendly_sam.lab.models.pretrained import hugging_face
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.training import feature_cache
from friendly_sam.lab.training.archive import check_archive
from friendly_sam.lab.training.checkpoints import DamagedCheckpointError, load_weights, read
from friendly_sam.lab.training.resume import Position, check_data
from friendly_sam.lab.training.trainer import train

ROOT = Path(__file__).resolve().parents[2]


def test_security_says_what_is_trusted_and_what_is_not() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ")]
    trusted, others = (" ".join(" ".join(cells).split()) for cells in zip(*rows, strict=True))
    assert trusted.startswith("trusted the command line")
    assert "installed packages" in trusted
    assert others.startswith("not trusted run folders")
    for word in ("data: parquet", "model folders", "checkpoints and weights", "configs: YAML"):
        assert word in others
        assert word not in trusted
    for word in ("--trust-remote-code", "model.cache", *_formats()):
        assert word in text
    held = re.findall(r"`(tests/[^`]*)`", text)
    assert len(held) == 4
    assert all((ROOT / name).is_file() for name in held)


def _formats() -> tuple[str, ...]:
    from friendly_sam.lab.data.pixels import FORMATS

    return FORMATS


@pytest.fixture
def code_folder(tmp_path: Path) -> Path:
    """A model folder that brings code, which would leave a file behind."""
    pytest.importorskip("transformers")
    folder = tmp_path / "evil"
    folder.mkdir()
    names = {"AutoConfig": "evil.C", "AutoModelForImageClassification": "evil.M"}
    (folder / "config.json").write_text(json.dumps({"auto_map": names, "model_type": "evil"}))
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'pwned')!r})\n")
    return folder


def test_code_of_a_model_folder_is_not_run_whoever_answers_yes(
    code_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    monkeypatch.setenv("FSAM_TRUST_REMOTE_CODE", "0")
    with pytest.raises(ValueError, match=r"brings code of its own, .* unless --trust-remote-code"):
        hugging_face(str(code_folder), classes=2)
    assert not (tmp_path / "pwned").exists()


def test_code_is_run_when_the_command_line_says_so_and_by_no_other_word(
    code_folder: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    modules = str(tmp_path / "modules")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", modules)
    monkeypatch.setattr(sys, "path", [*sys.path])  # where it puts that folder
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    monkeypatch.setenv("FSAM_TRUST_REMOTE_CODE", "1")
    run, page = tmp_path / "run", str(tmp_path / "page.html")
    shutil.copytree(finished, run)
    text = (run / "config.yaml").read_text()
    assert "  name: mlp\n" in text
    (run / "config.yaml").write_text(text.replace("  name: mlp\n", f"  name: hf:{code_folder}\n"))
    command = ["sharpness", str(run), "--images", "10", "--grid", "3", "--output", page]
    assert main(command) == 2
    assert "which is not run unless --trust-remote-code is said" in capsys.readouterr().err
    assert not (tmp_path / "pwned").exists()
    assert main([*command, "--trust-remote-code"]) == 2  # that code makes no network
    assert (tmp_path / "pwned").exists()


def test_a_network_without_end_is_refused_before_it_is_built(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "vit", "num_hidden_layers": 10**9}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="num_hidden_layers must be at most 1000, got 1000000000"):
        hugging_face(str(tmp_path), classes=2)
    config = {"model_type": "vit", "hidden_size": 1_200_000, "intermediate_size": 1_200_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"weights would take .* TB"):
        hugging_face(str(tmp_path), classes=2)
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors: it is a FIFO, not a regular file"):
        hugging_face(str(tmp_path), classes=2)
    (tmp_path / "config.json").unlink()
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        hugging_face(str(tmp_path), classes=2)


def test_a_network_is_refused_with_the_estimate(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 1_000_000)
    with pytest.raises(LabError, match=r"training mlp with .* weights would take .* MB"):
        train(tiny())


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_that_might_not_fit_is_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = (3, 32, 32)
    weights = count_weights(name, 10, image)
    batch = 2 + 4 * weights // (3 * 32 * 32)  # takes more than the weights do
    monkeypatch.setattr(memory, "available", lambda: 16 * weights)
    with pytest.raises(
        LabError, match=rf"a batch of {batch:,} images of 32x32 in {name} would take"
    ):
        check_memory(name, 10, image, batch)
    assert count_outputs(name, 10, image) < GROWTH * 3 * 32 * 32


def inflated(content: bytes) -> bytes:
    """The same archive, compressed."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name) + bytes(10 << 20))
    return file.getvalue()


def test_a_checkpoint_that_inflates_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"a": torch.ones(3)}, path)
    with path.open("rb") as file:
        check_archive(file)
    path.write_bytes(inflated(path.read_bytes()))
    with pytest.raises(DamagedCheckpointError, match="its records are compressed"):
        read(path)


def test_an_archive_that_claims_more_than_it_has_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", bytes(100))
    content = bytearray(file.getvalue())
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (10**9).to_bytes(4, "little")
    with pytest.raises(ValueError, match="claim more bytes than the file has"):
        check_archive(io.BytesIO(content))


@pytest.mark.parametrize(
    "weights",
    [{"a": 1}, {1: torch.ones(1)}, {"a": torch.ones(2).to_sparse()}, {"model": [1]},
     {"a": torch.ones(1).expand(10**9)}, {"a": torch.tensor(1j)},
     {"a": torch.ones(1, device="meta")}],
)  # fmt: skip
def test_weights_that_are_none_are_refused(tmp_path: Path, weights: Any) -> None:
    torch.save(weights, tmp_path / "x.pt")
    with pytest.raises(LabError, match=r"x\.pt"):
        load_weights(str(tmp_path / "x.pt"))


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_checkpoint_that_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.pt"
    os.mkfifo(path) if kind == "fifo" else path.symlink_to("/dev/zero")
    with pytest.raises(LabError, match="no checkpoint at"):
        load_weights(str(path))


def test_a_cached_feature_that_is_no_file_or_too_large_is_none(tmp_path: Path) -> None:
    out, path = torch.zeros(4), tmp_path / "features"
    feature_cache._write(path, torch.ones(4))
    assert feature_cache._read(path, out)
    assert out.tolist() == [1.0] * 4
    with path.open("r+b") as file:
        file.truncate(10 << 40)
    assert not feature_cache._read(path, out)
    path.unlink()
    os.mkfifo(path)
    assert not feature_cache._read(path, out)


def test_a_run_does_not_go_on_with_other_images() -> None:
    position = Position(data="a")
    with pytest.raises(LabError, match="are not those that this run began with") as refusal:
        check_data(position, "b")
    assert "\n" not in str(refusal.value)
    check_data(position, "a")
    older = Position()
    check_data(older, "b")
    assert older.data == "b"


BAD_RECORDS = [
    ("environment.json", '{"starts": {}}', "starts holds a mapping, not a list"),
    ("environment.json", '{"starts": []}', "starts is empty"),
    ("environment.json", '{"starts": [{"packages": []}]}', "packages holds a list, not a mapping"),
    ("environment.json", "[1]", "it holds a list, not a mapping"),
    ("metrics.jsonl", '{"test_accuracy": "x"}\n', "line 1 is damaged: test_accuracy holds text"),
    ("metrics.jsonl", '{"test_accuracy": null}\n', "test_accuracy holds null, not a number"),
    ("metrics.jsonl", '{"test_accuracy": [1]}\n', "test_accuracy holds a list, not a number"),
    ("metrics.jsonl", '{"a": ' + "9" * 400 + "}\n", "an integer of 400 digits"),
    ("metrics.jsonl", "[" * 5000 + "\n", "line 1 is damaged"),
    ("status.json", '{"state": "\\u001b[2J"}', r"no known state: '\x1b[2J'"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, without the digests that would refuse any change at once."""
    from lab_runs import tiny_config

    folder = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(folder, epochs=1))
    values = json.loads((folder / "status.json").read_text())
    values.pop("sha256")
    (folder / "status.json").write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize(("name", "content", "reason"), BAD_RECORDS)
def test_a_record_of_another_shape_is_one_line(
    finished: Path,
    tmp_path: Path,
    name: str,
    content: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / name).write_text(content)
    assert main(["report", str(tmp_path / "run"), "--output", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["status.json", "metrics.jsonl", "environment.json", "config.yaml"]
)
def test_a_record_that_is_no_file_never_hangs(finished: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(LabError):
        read_run(tmp_path / "run")
