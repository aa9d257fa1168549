"""`fsam bench`: what it measures is fair, what it writes is whole, what it refuses it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import Parameter

from friendly_sam import SAM, FriendlySAM
from friendly_sam.lab.bench import report
from friendly_sam.lab.bench.arithmetic import FLOOR, one_network
from friendly_sam.lab.bench.floor import ASCENT_BYTES, copies
from friendly_sam.lab.bench.growth import measure_growth
from friendly_sam.lab.bench.memory import measure_memory
from friendly_sam.lab.bench.peers import RHO, PlainFriendlySAM, PlainSAM, library
from friendly_sam.lab.bench.shapes import TITLES, shapes
from friendly_sam.lab.bench.step import SGD, measure_step
from friendly_sam.lab.bench.targets import COPIES, WITHIN, targets
from friendly_sam.lab.bench.timing import take_turns
from friendly_sam.lab.cli import main
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.statistics import log_slope, ratio, spread


def silent(_: str) -> None:
    pass


def weights() -> list[Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((7, 5), (5,), (3, 2, 2))
    return [
        Parameter(torch.randn(shape, dtype=torch.float64, generator=generator)) for shape in shapes
    ]


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize(
    ("loop", "recipe"),
    [(PlainSAM, SAM), (PlainFriendlySAM, lambda b, r: FriendlySAM(b, r, variant="authors"))],
)
def test_the_loops_written_again_perturb_as_the_library_does(loop, recipe, lean):
    theirs, ours = weights(), weights()
    start = [p.detach().clone() for p in ours]
    plain = loop(theirs, RHO, lean=lean)
    contender = library(recipe(torch.optim.SGD(ours, lr=0.1), RHO))
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        for a, b in zip(theirs, ours):
            gradient = torch.randn(a.shape, dtype=a.dtype, generator=generator)
            a.grad, b.grad = gradient.clone(), gradient.clone()
        plain.ascend()
        contender.ascend()
        for a, b, w in zip(theirs, ours, start):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
            assert not torch.equal(b, w)
        for p in (*theirs, *ours):
            p.grad = torch.ones_like(p)
        plain.restore()
        contender.restore()
        for a, b, w in zip(theirs, ours, start):
            assert torch.equal(a, w)
            assert torch.equal(b, w)


def test_pytorch_optimizer_perturbs_as_the_authors_do():
    other = pytest.importorskip("pytorch_optimizer")
    theirs, ours = weights(), weights()
    peer = other.FriendlySAM(theirs, torch.optim.SGD, rho=RHO, foreach=True, lr=0.1)
    loop = PlainFriendlySAM(ours)
    for scale in (1.0, -2.0, 3.0):
        for a, b in zip(theirs, ours):
            a.grad, b.grad = a.detach() * scale + 1, b.detach() * scale + 1
        peer.first_step(zero_grad=True)
        loop.ascend()
        torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-11)
        for a, b in zip(theirs, ours):
            a.grad, b.grad = torch.zeros_like(a), torch.zeros_like(b)
        peer.second_step()
        loop.restore()


def test_contenders_take_turns_in_a_rotating_order():
    order = []
    run = {name: lambda name=name: order.append(name) or 1.0 for name in "abc"}
    times = take_turns(run, rounds=2, warm_up=1)
    assert "".join(order) == "abcbcacab"
    assert times == {name: [1.0, 1.0] for name in "abc"}


def test_a_ratio_is_taken_within_a_round():
    found = ratio([2.0, 4.0, 30.0], [1.0, 4.0, 10.0])  # a machine that slows down
    assert found.median == 2.0
    assert (found.low, found.high) == (1.5, 2.5)
    assert spread([3.0]).low == spread([3.0]).high == 3.0
    assert log_slope([1, 10, 100], [5, 50, 500]) == pytest.approx(1)


@pytest.mark.parametrize("method", ["SAM", "F-SAM"])
def test_the_floor_moves_as_many_bytes_as_it_says(method, monkeypatch):
    moved = []
    original = torch.Tensor.copy_

    def counting(self, source):
        moved.append(2 * source.nbytes)
        return original(self, source)

    floor = copies(method, 1000)
    monkeypatch.setattr(torch.Tensor, "copy_", counting)
    floor.ascend()
    assert sum(moved) == ASCENT_BYTES[method] * 1000
    moved.clear()
    floor.restore()
    assert sum(moved) == 8 * 1000


def test_the_shapes_are_those_of_the_networks():
    counts = {name: sum(size.numel() for size in shapes(name)) for name in TITLES}
    assert counts["resnet18"] == 11_173_962
    assert counts["vit_s"] == 22_050_664
    assert counts["vit_b"] == 86_567_656


def test_the_arithmetic_tells_of_every_contender():
    found = one_network("mlp", "F-SAM", rounds=1, threads=1)
    assert {"this library", "the authors' algorithm", FLOOR} <= found["rows"].keys()
    assert {"pytorch_optimizer"} <= found["rows"].keys() | found["absent"].keys()
    for row in found["rows"].values():
        assert 0 < row["seconds"]["low"] <= row["seconds"]["median"] <= row["seconds"]["high"]
    ours = found["rows"]["this library"]
    assert ours["against"][FLOOR]["median"] == pytest.approx(
        ours["seconds"]["median"] / found["rows"][FLOOR]["seconds"]["median"]
    )


def test_a_step_is_measured_for_every_way_to_make_it_cheap():
    found = measure_step(rounds=1, threads=1, batch=16, size=8, progress=silent)
    rows = found["rows"]
    assert rows[SGD]["against SGD"]["median"] == 1
    for name in ("1/2", "1/4", "1/8", "1/16"):
        assert f"F-SAM, ascent on {name}" in rows
    for name in ("every=2", "every=5", "norm layers only", "last layer only"):
        assert f"F-SAM, {name}" in rows


def test_peak_memory_is_one_copy_for_sam_and_two_for_f_sam():
    found = measure_memory(megabytes=60, methods=["SGD", "SAM", "F-SAM"], progress=silent)
    for name, copies_ in COPIES.items():
        assert found["rows"][name]["copies"] == pytest.approx(copies_, rel=WITHIN)


def test_three_thousand_steps_take_no_more_memory_than_three_hundred():
    found = measure_growth(early=300, late=3_000, methods=("F-SAM",), progress=silent)
    row = found["rows"]["F-SAM"]
    assert row["late"]["resident"] - row["early"]["resident"] <= 2**20
    assert row["python"]["bytes"] < 40 * 300  # an object kept by each of 300 steps is more
    assert row["late"]["objects"] - row["early"]["objects"] < 100


def test_the_command_writes_tables_that_say_what_the_json_says(tmp_path, capsys):
    folder = tmp_path / "bench"
    assert main(["bench", "arithmetic", "--quick", "--rounds", "2", "--output", str(folder)]) == 0
    assert main(["bench", "step", "--quick", "--rounds", "1", "--output", str(folder)]) == 0
    parts = json.loads((folder / "bench.json").read_text())["parts"]
    assert parts.keys() == {"arithmetic", "step"}  # the first is still there
    shown = capsys.readouterr().out
    page = (folder / "README.md").read_text()
    median = parts["step"]["rows"]["F-SAM"]["against SGD"]["median"]
    for text in (shown, page):
        assert "F-SAM on the shapes of MLP" in text
        assert f"{median:.3f}" in text
    lines = shown[shown.index("A whole training step") :].splitlines()
    rule = next(line for line in lines if line.startswith("---"))
    ends = [len(part) for part in (rule.rstrip(),)]
    rows = [line for line in lines if line.startswith(("SAM", "F-SAM"))]
    assert {len(row) for row in rows} == set(ends)
    for name in ("arithmetic", "step"):
        assert (folder / f"{name}.svg").read_text().startswith("<?xml")
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert targets(parts) == []  # other sizes, so nothing is held against a bound


def test_targets_are_met_or_not():
    good = {"median": 2.0, "low": 1.9, "high": 2.1}
    names = ("F-SAM", "F-SAM, ascent on 1/4", "F-SAM, ascent on 1/8", "F-SAM, ascent on 1/16")
    parts = {
        "step": {"rows": {name: {"against SGD": good} for name in names}},
        "memory": {"rows": {"SAM": {"copies": 1.029}, "F-SAM": {"copies": 2.07}}},
    }
    assert [target.met for target in targets(parts)] == [True, False, False, False, True, False]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["everything"], "invalid choice: 'everything'"),
        (["--networks", "alexnet"], "invalid choice: 'alexnet'"),
        (["step", "--networks", "mlp"], "--networks is for arithmetic and device, not for step"),
        (["--rounds", "0"], "--rounds must be at least 1, got 0"),
        (["--threads", "-1"], "--threads must be at least 1, got -1"),
        (["--rounds", "many"], "must be a whole number, got 'many'"),
        (["--output", "{file}"], "is a file, not a folder"),
        (["--output", "{damaged}"], "is damaged or of another version"),
    ],
)
def test_a_mistake_is_one_line_before_any_work(arguments, words, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / report.FILE).write_text('{"parts": {"step": {}}}')
    places = {name: str(tmp_path / name) for name in ("file", "damaged")}
    assert main(["bench", *(argument.format(**places) for argument in arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["bench", "--help"])
    assert "fsam bench arithmetic --networks resnet18" in capsys.readouterr().out
    assert not Path("bench").exists()


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[1]", '{"parts": ' + "9" * 400 + "}", "{}",
     '{"parts": {"scaling": {"sizes": {"rounds": 1, "threads": 1, '
     '"parameters": {"x": [0], "seconds": [{"median": 1}]}}}}}'],
)  # fmt: skip
def test_a_file_of_measurements_that_is_damaged_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(LabError, match="is damaged or of another version: delete it"):
        report.read(tmp_path)
