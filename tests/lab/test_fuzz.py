"""Input by machine: it runs, or it is refused in one line with nothing changed on disk.

`FUZZ=50 pytest tests/lab/test_fuzz.py` tries 50 times as much.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab_runs import same, tiny_config

from friendly_sam import FriendlySAM
from friendly_sam.lab.cli import main
from friendly_sam.lab.cli.dispatch import COMMANDS
from friendly_sam.lab.config.yaml import to_dict

FACTOR = int(os.environ.get("FUZZ", "1"))
COUNTS = Path(os.environ["FUZZ_COUNTS"]) if "FUZZ_COUNTS" in os.environ else None

JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 2, 7, 0.5, -0.5, 1e308, float("nan"), float("inf"), "", "x", "0.1",
     "../../x", "\x00", "é", [], [1], [0.1, 0.2], {}, {"name": "sam"}, "sgd", "sam", "fsam", "cnn"]
)  # fmt: skip
FEW = settings(max_examples=25 * FACTOR, deadline=None, suppress_health_check=list(HealthCheck))


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def attempt(folder: Path, arguments: list[str]) -> int:
    """Run a command in `folder`; check the property, and give the exit code."""
    before, error = listing(folder), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stderr(error),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            code = main(arguments)
        except SystemExit as stop:  # argparse, for --help
            code = int(stop.code or 0)
    said = [line for line in error.getvalue().splitlines() if "Warning" not in line]
    if COUNTS is not None:
        with COUNTS.open("a") as file:
            file.write(json.dumps([arguments[0] if arguments else "", code]) + "\n")
    if code == 2:
        assert listing(folder) == before, "a refused input changed the disk"
    if code != 0:
        errors = [line for line in said if line.startswith("fsam: error: ")]
        assert len(errors) == 1, said
        assert "Traceback" not in error.getvalue()
    return code


def leaves(values: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for key, value in values.items():
        found.append((*prefix, key))
        if isinstance(value, dict):
            found += leaves(value, (*prefix, key))
    return found


CONFIG = to_dict(tiny_config(Path("run"), epochs=1, data={"train_size": 64, "test_size": 50}))
CONFIG["data"] |= {"batch_size": 32}
PATHS = [path for path in leaves(CONFIG) if path not in (("output",), ("engine", "device"))]


@FEW
@given(st.lists(st.tuples(st.sampled_from(PATHS), JUNK), min_size=1, max_size=3))
def test_any_config_file_runs_or_is_refused(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    config = copy.deepcopy(CONFIG)
    for path, value in changes:
        place: Any = config
        for key in path[:-1]:
            place = place.get(key) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place[path[-1]] = value
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        attempt(folder, ["train", "--config", "config.yaml", "--output", "run"])


@FEW
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_file_as_a_config_is_refused_or_runs(content: bytes | str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        (folder / "config.yaml").write_bytes(data)
        code = attempt(folder, ["train", "--config", "config.yaml", "--epochs", "0"])
        assert code == 2


WORDS = st.sampled_from(
    ["--epochs", "--seed", "--preset", "--config", "--output", "--resume", "--method.rho", "--rows",
     "--method.name", "--data.name", "--data.root", "--scale", "--workers", "--seeds", "--list",
     "--base.lr", "--engine.threads", "-h", "--help", "--", "-", "0", "-1", "nan", "1e999", "x", "",
     "fsam", "mini", "huge", "table1", "digits", "cifar10", "nowhere", "a/b", "é", "--unknown", "="]
)  # fmt: skip


@FEW
@given(st.sampled_from([*COMMANDS, "", "traim"]), st.lists(WORDS, max_size=5))
def test_any_command_line_is_answered(command: str, words: list[str]) -> None:
    arguments = [command, *words]
    heavy = (
        command == "demo" or (command == "reproduce" and "table1" in words) or command == "bench"
    )
    if command == "train":
        arguments += ["--data.train_size", "40", "--data.test_size", "20", "--epochs", "0"]
    elif heavy:
        arguments.append("--unknown")  # these would start hours of work
    with tempfile.TemporaryDirectory() as name:
        attempt(Path(name), arguments)


def small_set(folder: Path) -> Path:
    """Write a data set of two parquet files."""
    import pyarrow as pa
    from PIL import Image
    from pyarrow import parquet

    for part, count in (("train", 12), ("test", 6)):
        pictures = []
        for index in range(count):
            file = io.BytesIO()
            Image.new("RGB", (8, 8), (index * 20, 0, 255 - index * 20)).save(file, "PNG")
            pictures.append({"bytes": file.getvalue(), "path": None})
        table = pa.table({"img": pictures, "label": [i % 3 for i in range(count)]})
        parquet.write_table(table, folder / f"{part}.parquet")
    return folder


@FEW
@given(st.randoms(use_true_random=False), st.sampled_from(["train.parquet", "test.parquet"]))
def test_any_damage_to_a_data_set_runs_or_is_refused(dice: random.Random, name: str) -> None:
    pytest.importorskip("pyarrow")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "data").mkdir()
        path = small_set(folder / "data") / name
        content = bytearray(path.read_bytes())
        how = dice.choice(("flip", "truncate", "blank", "insert"))
        at = dice.randrange(len(content))
        if how == "flip":
            for _ in range(dice.randrange(1, 20)):
                content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        elif how == "truncate":
            del content[at:]
        elif how == "blank":
            content[at : at + 200] = bytes(len(content[at : at + 200]))
        else:
            content[at:at] = dice.randbytes(30)
        path.write_bytes(content)
        settings_ = ["--data.name", "parquet", "--data.root", "data", "--model.name", "mlp"]
        settings_ += ["--data.batch_size", "4", "--epochs", "1", "--engine.tensorboard", "false"]
        attempt(folder, ["train", *settings_, "--engine.threads", "1", "--output", "run"])


def optimizer() -> FriendlySAM:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    built = FriendlySAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 0.1)

    def closure() -> torch.Tensor:
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        return loss

    built.step(closure)
    return built


@settings(FEW, max_examples=100 * FACTOR)
@given(st.data())
def test_any_state_dict_is_loaded_or_refused_and_then_nothing_changed(data: st.DataObject) -> None:
    tried = optimizer()
    state = copy.deepcopy(tried.state_dict())
    paths = leaves(state)
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=2)):
        place: Any = state
        for key in path[:-1]:
            place = place[key] if isinstance(place, dict) and key in place else None
        if isinstance(place, dict):
            if data.draw(st.booleans()):
                place.pop(path[-1], None)
            else:
                place[path[-1]] = data.draw(JUNK | st.just(torch.ones(5)))
    before, refusal = copy.deepcopy(tried.state_dict()), None
    try:
        tried.load_state_dict(state)
    except Exception as error:
        refusal = error
    if refusal is not None:
        assert str(refusal)
        assert same(tried.state_dict(), before), "a refused state_dict changed the optimizer"
