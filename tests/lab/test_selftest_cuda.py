"""The checks that need CUDA, run on a stand-in: what torch would do there is played by the CPU.

So their own mistakes come out here; what a GPU does with them does not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from friendly_sam.lab.bench.recipes import RECIPES
from friendly_sam.lab.promises import cuda
from friendly_sam.lab.promises.outcome import BrokenPromiseError, Check, Verdict, carry_out
from friendly_sam.lab.promises.problem import sgd, step_by_hand

CPU = torch.device("cpu")


class StandIn:
    """A graph that remembers the step which was captured, and takes it again at each replay."""

    step: Callable[[], None]

    def __init__(self, *, replays: bool = True) -> None:
        self.replays = replays

    def replay(self) -> None:
        if self.replays:
            self.step()


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made, capturing = StandIn(), [False]

    class Capture:
        def __init__(self, graph: StandIn) -> None: ...

        def __enter__(self) -> None:
            capturing[0] = True

        def __exit__(self, *_: object) -> None:
            capturing[0] = False

    def step(*arguments: Any) -> None:
        if capturing[0]:
            made.step = lambda: step_by_hand(*arguments)
        else:
            step_by_hand(*arguments)

    class Stream:
        def wait_stream(self, _: object) -> None: ...

    monkeypatch.setattr(cuda, "step_by_hand", step)
    monkeypatch.setattr(cuda, "_capturable", sgd)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: made)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return made


def test_steps_that_are_replayed_equal_those_that_are_not(graph: StandIn) -> None:
    assert cuda._capture(CPU).startswith("captured: SAM, ASAM, ")


def test_a_replay_that_does_nothing_is_noticed(graph: StandIn) -> None:
    graph.replays = False
    with pytest.raises(BrokenPromiseError, match="SAM: replayed steps are off by"):
        cuda._capture(CPU)


def test_waits_are_looked_for_after_the_first_step_and_switched_off_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    assert cuda._waits(CPU) == f"{len(RECIPES)} recipes"
    assert modes[:4] == ["default", "error", "default", "error"]
    assert modes[-1] == "default"


def test_a_wait_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(mode: str) -> None:
        if mode == "error":
            monkeypatch.setattr(torch, "_foreach_copy_", waits)

    def waits(*_: object, **__: object) -> None:
        raise RuntimeError("called a synchronizing CUDA operation")

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", raising)
    with pytest.raises(BrokenPromiseError, match="SAM: called a synchronizing CUDA operation"):
        cuda._waits(CPU)


@pytest.mark.parametrize("too_much", [False, True])
def test_memory_is_held_against_what_is_promised(
    too_much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 16 * 1024 * 1024 * 4
    monkeypatch.setattr(cuda, "RECIPES", {"F-SAM": RECIPES["F-SAM"]})
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 100)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    peak = 100 + size * (3 + 2 + 0.05 + 0.1 * too_much)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: peak)
    outcome = carry_out(Check("memory", lambda: cuda._memory(CPU)))
    assert outcome.verdict is (Verdict.FAILED if too_much else Verdict.OK)
    assert "F-SAM" in outcome.detail


def test_a_model_over_two_devices_equals_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "FIRST", "cpu")
    monkeypatch.setattr(cuda, "SECOND", "cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert cuda._several(CPU) == f"{len(RECIPES)} recipes"


def test_one_device_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    outcome = carry_out(Check("several", lambda: cuda._several(CPU)))
    assert outcome.verdict is Verdict.NOT_TRIED
    assert "needs two CUDA devices" in outcome.detail
