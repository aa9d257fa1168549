"""Promises that hold to the bit, and the formulas."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from friendly_sam import FriendlySAM, SharpnessAware
from friendly_sam.lab.bench.recipes import RECIPES, Recipe
from friendly_sam.lab.counting import counted
from friendly_sam.lab.promises.outcome import BrokenPromiseError, Check, NotApplicableError
from friendly_sam.lab.promises.plain import FORMULAS, LOOK_EVERY, trajectory
from friendly_sam.lab.promises.problem import (
    Backward,
    backward,
    network,
    same,
    saved,
    sgd,
    train,
    weights,
)

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
RESTORED = LOOK_EVERY + 2
"""Steps in which every recipe perturbs at least twice."""
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-3}
RHO = 0.05


class Planned(Exception):  # noqa: N818 (no mistake of anybody's)
    """What a check raises inside a pass."""


def checks(device: torch.device, *, steps: int) -> Iterator[Check]:
    """Return the checks of this module; `steps` are those of the formulas."""
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        yield Check(f"exact restore, {name}", lambda d=dtype: _restore(device, d))  # type: ignore[misc]
    yield Check("exact restore after an error", lambda: _restore_after_error(device))
    yield Check("resumed run equals the uninterrupted one", lambda: _resume(device))
    yield Check("radius 0 is the base optimizer", lambda: _radius_0(device))
    yield Check("sigma 0 is SAM", lambda: _sigma_0(device))
    for dtype, tolerance in TOLERANCES.items():
        name = str(dtype).removeprefix("torch.")
        yield Check(
            f"formulas over {counted(steps, 'step')}, {name}",
            lambda d=dtype, t=tolerance: _formulas(device, d, t, steps),  # type: ignore[misc]
        )


def need(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a dtype in which the device cannot train the network."""
    try:
        backward(network(device, dtype), 0)()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        said = " ".join(str(error).split())[:120]
        raise NotApplicableError(f"{device.type} does not train in {dtype}: {said}") from error


def _restore(device: torch.device, dtype: torch.dtype) -> str:
    need(device, dtype)
    for name, recipe in RECIPES.items():
        model = network(device, dtype)
        optimizer = recipe(sgd(model, lr=0.0), RHO)
        before, places = weights(model), [p.data_ptr() for p in model.parameters()]
        moves = 0
        for number in range(RESTORED):
            passes: list[bool] = []
            optimizer.step(_noting(backward(model, number), model, before, passes))
            moves += any(passes)
            same(weights(model), before, f"{name}: weights after step {number} and before")
            if [p.data_ptr() for p in model.parameters()] != places:
                raise BrokenPromiseError(f"{name}: the weights came back in other memory")
        if moves < 2:
            raise BrokenPromiseError(f"{name}: the weights never moved")
    return f"{len(RECIPES)} recipes"


def _noting(run: Backward, model: nn.Module, before: list[Tensor], passes: list[bool]) -> Backward:
    """Return a pass that notes whether it was at other weights than before."""

    def noting() -> Tensor:
        passes.append(_moved(model, before))
        return run()

    return noting


def _moved(model: nn.Module, before: list[Tensor]) -> bool:
    pairs = zip(model.parameters(), before, strict=True)
    return any(not torch.equal(parameter.detach(), w) for parameter, w in pairs)


def _restore_after_error(device: torch.device) -> str:
    for name, recipe in RECIPES.items():
        model = network(device, torch.float32)
        optimizer = recipe(sgd(model, lr=0.0), RHO)
        before = weights(model)
        raised = False
        for number in range(2):
            try:
                optimizer.step(_failing(backward(model, number), model, before))
            except Planned:
                raised = True
        if not raised:
            raise BrokenPromiseError(f"{name}: the weights never moved")
        same(weights(model), before, f"{name}: weights after the error and before")
    return f"{len(RECIPES)} recipes"


def _failing(run: Backward, model: nn.Module, before: list[Tensor]) -> Backward:
    """Return a pass that raises at other weights than before."""

    def failing() -> Tensor:
        if _moved(model, before):
            raise Planned
        return run()

    return failing


def _resume(device: torch.device) -> str:
    half, end = range(LOOK_EVERY - 1), range(LOOK_EVERY - 1, 2 * LOOK_EVERY)
    for name, recipe in RECIPES.items():
        model, optimizer = _start(device, recipe)
        train(model, optimizer, half)
        states = saved(model.state_dict(), optimizer.state_dict())
        train(model, optimizer, end)
        again, resumed = _start(device, recipe)
        again.load_state_dict(states[0])
        resumed.load_state_dict(states[1])
        train(again, resumed, end)
        same(weights(again), weights(model), f"{name}: the resumed run and the uninterrupted one")
    return f"{len(RECIPES)} recipes"


def _start(device: torch.device, recipe: Recipe) -> tuple[nn.Module, SharpnessAware]:
    model = network(device, torch.float32)
    return model, recipe(sgd(model), RHO)


def _radius_0(device: torch.device) -> str:
    plain = network(device, torch.float32)
    base = sgd(plain)
    steps = range(LOOK_EVERY)
    for number in steps:
        base.zero_grad()
        backward(plain, number)()
        base.step()
    for name, recipe in RECIPES.items():
        model = network(device, torch.float32)
        train(model, recipe(sgd(model), 0.0), steps)
        same(weights(model), weights(plain), f"{name} and the base optimizer")
    return f"{len(RECIPES)} recipes"


def _sigma_0(device: torch.device) -> str:
    found = []
    for recipe in (RECIPES["SAM"], lambda base, rho: FriendlySAM(base, rho, sigma=0.0)):
        model, optimizer = _start(device, recipe)
        train(model, optimizer, range(LOOK_EVERY))
        found.append(weights(model))
    same(found[0], found[1], "F-SAM and SAM")
    return ""


def _formulas(device: torch.device, dtype: torch.dtype, tolerance: float, steps: int) -> str:
    need(device, dtype)
    worst = 0.0
    for name, recipe in RECIPES.items():
        model = network(device, dtype)
        train(model, recipe(sgd(model), RHO), range(steps))
        found = torch.cat([p.detach().flatten().cpu().double() for p in model.parameters()])
        off = float((found - trajectory(FORMULAS[name](RHO), steps)).abs().max())
        if not off <= tolerance:
            raise BrokenPromiseError(f"{name} is off by {off:.3g}, more than {tolerance:g}")
        worst = max(worst, off)
    return f"{len(RECIPES)} recipes, off by at most {worst:.1e} (allowed {tolerance:g})"
