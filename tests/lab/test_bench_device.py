"""`fsam bench device`: what it counts, what it estimates, what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from friendly_sam.lab.bench.counting import Counter
from friendly_sam.lab.bench.device import BASE, COUNTED, measure_device, tables
from friendly_sam.lab.bench.fake_step import fake_parameters
from friendly_sam.lab.bench.launches import BLOCKS, CHUNK, packed
from friendly_sam.lab.bench.recipes import RECIPES
from friendly_sam.lab.bench.shapes import shapes
from friendly_sam.lab.bench.targets import targets
from friendly_sam.lab.cli import main


@pytest.mark.parametrize(
    ("sizes", "lists", "launches"),
    [
        ([], 1, 0),
        ([0, 0], 1, 0),
        ([1], 1, 1),
        ([1] * 110, 1, 1),
        ([1] * 111, 1, 2),
        ([1] * 64, 2, 1),
        ([1] * 65, 2, 2),
        ([1] * 49, 3, 2),
        ([BLOCKS * CHUNK], 1, 1),
        ([BLOCKS * CHUNK + 1], 1, 2),
        ([BLOCKS * CHUNK, 1], 1, 2),
        ([(BLOCKS - 1) * CHUNK, 1, 1], 1, 2),
        # the tensor that is carried over takes one of the 64 places of the second launch
        ([BLOCKS * CHUNK + 1] + [1] * 63, 2, 2),
        ([BLOCKS * CHUNK + 1] + [1] * 64, 2, 3),
    ],
)
def test_tensors_are_packed_into_launches(sizes: list[int], lists: int, launches: int) -> None:
    assert packed(sizes, lists) == launches


def test_views_allocations_and_reads_are_no_operations() -> None:
    with fake_parameters(shapes("mlp")) as parameters, Counter() as counter:
        x = parameters[1].detach()
        x.view(-1)
        x.unbind()
        x[0], x[1:]
        torch.empty_like(x)
        torch.promote_types(torch.float32, torch.float64)
        x.unsqueeze_(0)
        assert counter.operations.total() == 0
        x.sum().item()
        assert counter.operations == {"sum": 1}
        torch._foreach_add_(parameters, 1.0)
        torch.stack([x, x])
        assert counter.operations.total() == 3
        assert counter.launches == 3


def test_norms_and_large_stacks_take_more_than_one_launch() -> None:
    with fake_parameters(shapes("mlp")) as parameters, Counter() as counter:
        norms = torch._foreach_norm(parameters)
        assert counter.launches == 4  # two fills, the sums, their end
        torch.stack(list(norms) * 50)
        assert counter.launches == 4 + 3


def test_work_on_the_cpu_launches_nothing() -> None:
    with fake_parameters(shapes("mlp"), devices=("cpu",)) as parameters, Counter() as counter:
        torch._foreach_add_(parameters, 1.0)
        parameters[0].sum().item()
        assert (counter.launches, counter.waits) == (0, [])


def test_memory_that_is_let_go_does_not_count() -> None:
    with fake_parameters(shapes("mlp")) as parameters, Counter() as counter:
        size = parameters[0].nbytes
        for _ in range(3):
            torch.zeros_like(parameters[0])
        assert counter.peak == size
        kept = [torch.zeros_like(parameters[0]) for _ in range(3)]
        views = [x[0] for x in kept]
        del kept
        assert counter.live() == 3 * size
        del views
        assert counter.live() == 0
        assert counter.peak == 3 * size


def test_the_command_counts_every_recipe_and_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bench"
    assert main(["bench", "device", "--quick", "--output", str(folder)]) == 0
    part = json.loads((folder / "bench.json").read_text())["parts"]["device"]
    rows = part["networks"]["mlp"]["rows"]
    assert {BASE, *RECIPES, *COUNTED} <= rows.keys()
    assert rows[BASE]["float32"]["operations"] == 3
    shown, page = capsys.readouterr().out, (folder / "README.md").read_text()
    for text in (shown, page):
        assert "A step on an accelerator: MLP 784-1024-1024-10, 6 tensors" in text
    operations = "{operations} / ".format(**rows["F-SAM"]["float32"])
    assert any(line.startswith("F-SAM ") and operations in line for line in shown.splitlines())


def test_the_bounds_are_targets() -> None:
    row = {"operations": 46, "synchronisations": 1}
    rows = {name: {"float32": row} for name in ("F-SAM", "ASAM")}
    found = targets({"device": {"networks": {"resnet18": {"rows": rows}}}})
    assert [target.met for target in found] == [False, False, True, False]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("friendly_sam.lab.bench.peers.optional", lambda name: None)
    monkeypatch.setattr("friendly_sam.lab.bench.device.COUNTED", {})
    (_, note, _) = next(tables(measure_device(["mlp"], lambda line: None)))
    assert "F-SAM: pytorch_optimizer: not installed." in note
