"""What needs CUDA: waits of the host, graph capture, memory, several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter

from friendly_sam import SharpnessAware
from friendly_sam.lab.bench.fake_step import promised, step_of
from friendly_sam.lab.bench.recipes import RECIPES
from friendly_sam.lab.promises.exact import RHO
from friendly_sam.lab.promises.outcome import BrokenPromiseError, Check, NotTriedError
from friendly_sam.lab.promises.plain import LOOK_EVERY
from friendly_sam.lab.promises.problem import backward, network, sgd, step_by_hand, train, weights

CLOSE = 1e-4
FIRST, SECOND = "cuda:0", "cuda:1"
TEMPORARIES = 0.1
"""Copies of the parameters that temporaries may take."""


def checks(device: torch.device) -> Iterator[Check]:
    """Return the checks of this module; on another device each says what it needs."""

    def on_cuda(run: Callable[[torch.device], str]) -> Callable[[], str]:
        def guarded() -> str:
            if device.type != "cuda":
                raise NotTriedError("needs CUDA")
            return run(device)

        return guarded

    yield Check("no wait of the host in a step", on_cuda(_waits))
    yield Check("graph capture", on_cuda(_capture))
    yield Check("peak memory", on_cuda(_memory))
    yield Check("several devices in one model", on_cuda(_several))


def _waits(device: torch.device) -> str:
    """Make torch raise where the host would wait."""
    for name, recipe in RECIPES.items():
        model = network(device, torch.float32)
        step = step_of(recipe(sgd(model), RHO))
        for number in range(LOOK_EVERY + 1):
            if number:  # the first step makes state
                torch.cuda.set_sync_debug_mode("error")
            try:
                step()
            except RuntimeError as error:
                said = " ".join(str(error).split())[:120]
                raise BrokenPromiseError(f"{name}: {said}") from error
            finally:
                torch.cuda.set_sync_debug_mode("default")
    return f"{len(RECIPES)} recipes"


def _capture(device: torch.device) -> str:
    """Replay a captured step and compare with as many steps that were not captured."""
    captured, refused = [], []
    for name, recipe in RECIPES.items():
        eager = network(device, torch.float32)
        optimizer = recipe(_capturable(eager), RHO)
        for _ in range(3 + LOOK_EVERY):
            step_by_hand(optimizer, backward(eager, 0))
        model = network(device, torch.float32)
        if not _replay(model, recipe(_capturable(model), RHO), warm_up=3, replays=LOOK_EVERY):
            refused.append(name)
            continue
        off = max(
            float((a - b).abs().max()) for a, b in zip(weights(model), weights(eager), strict=True)
        )
        if not off <= CLOSE:
            raise BrokenPromiseError(f"{name}: replayed steps are off by {off:.3g}")
        captured.append(name)
    if not captured:
        raise BrokenPromiseError("no recipe could be captured")
    said = f", refused: {', '.join(refused)}" if refused else ""
    return f"captured: {', '.join(captured)}{said}"


def _capturable(model: nn.Module) -> torch.optim.AdamW:
    """Return a base whose step can be captured."""
    return torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)


def _replay(model: nn.Module, optimizer: SharpnessAware, *, warm_up: int, replays: int) -> bool:
    """Capture a step and replay it; return whether the optimizer lets itself be captured."""
    run = backward(model, 0)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            step_by_hand(optimizer, run)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step_by_hand(optimizer, run)
    except RuntimeError as error:
        if "captured" in str(error) and "CUDA error" not in str(error):
            return False  # refused in words of its own, not by CUDA
        raise
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    return True


def _memory(device: torch.device) -> str:
    found = {}
    for name, recipe in RECIPES.items():
        start = torch.cuda.memory_allocated(device)
        parameters = [Parameter(torch.zeros(1024, 1024, device=device)) for _ in range(16)]
        size = sum(parameter.nbytes for parameter in parameters)
        optimizer = recipe(torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True), RHO)
        step = step_of(optimizer)
        for _ in range(LOOK_EVERY):
            step()
        torch.cuda.reset_peak_memory_stats(device)
        step()
        copies = (torch.cuda.max_memory_allocated(device) - start) / size - 3
        if copies > promised(optimizer) + TEMPORARIES:
            raise BrokenPromiseError(
                f"{name} takes {copies:.2f} copies of the parameters, not {promised(optimizer)}"
            )
        found[name] = copies
        del optimizer, step, parameters
    return ", ".join(f"{name} {copies:.2f}" for name, copies in found.items())


def _several(device: torch.device) -> str:
    if torch.cuda.device_count() < 2:
        raise NotTriedError("needs two CUDA devices")
    for name, recipe in RECIPES.items():
        found: list[Any] = []
        for model in (network(device, torch.float32), _Split(network(device, torch.float32))):
            train(model, recipe(sgd(model), RHO), range(LOOK_EVERY + 2))
            found.append([w.cpu() for w in weights(model)])
        off = max(float((a - b).abs().max()) for a, b in zip(*found, strict=True))
        if not off <= CLOSE:
            raise BrokenPromiseError(f"{name}: two devices and one differ by {off:.3g}")
    return f"{len(RECIPES)} recipes"


class _Split(nn.Module):
    """The network with its first layer on one device and its last on another."""

    def __init__(self, whole: nn.Sequential) -> None:
        super().__init__()
        self.first, self.last = whole[:2].to(FIRST), whole[2:].to(SECOND)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Carry what is between the layers to the other device, and the result back."""
        logits: torch.Tensor = self.last(self.first(x.to(FIRST)).to(SECOND))
        return logits.to(x.device)
