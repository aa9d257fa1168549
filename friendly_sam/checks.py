"""Checks of what a user passes: each error names the argument, its value and what is allowed."""

from __future__ import annotations

import inspect
import math
from numbers import Real

from torch import nn
from torch.optim import Optimizer

from friendly_sam.blocks import is_sharded


def check_number(name: str, value: object, *, at_least: float | None = None) -> None:
    """`value` is a finite real number, and not below `at_least`."""
    bound = "a finite number" if at_least is None else f"a finite number >= {at_least:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {bound}, not {value!r}")
    if not math.isfinite(value) or (at_least is not None and value < at_least):
        raise ValueError(f"{name} must be {bound}, not {value!r}")


def check_count(name: str, value: object) -> None:
    """`value` is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer >= 1, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be an integer >= 1, not {value!r}")


def check_base(base: object) -> None:
    """`base` is an optimizer instance that can step without a closure."""
    if isinstance(base, type) and issubclass(base, Optimizer):
        raise TypeError(
            f"base must be an optimizer instance such as {base.__name__}(model.parameters()), "
            f"not the class {base.__name__}"
        )
    if not isinstance(base, Optimizer):
        raise TypeError(
            f"base must be a torch.optim.Optimizer, not {base!r}: write for example "
            "FriendlySAM(torch.optim.SGD(model.parameters(), lr=0.1)); friendly_sam.compat takes "
            "parameters and a class, as davda54/sam does"
        )
    closure = inspect.signature(base.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise TypeError(
            f"base must be able to step without a closure, which {type(base).__name__} cannot"
        )


def check_model(model: object, base: Optimizer) -> None:
    """`model` is a module that has at least one of the parameters of `base`."""
    if model is None:
        return
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module or None, not {model!r}")
    trained = {parameter for group in base.param_groups for parameter in group["params"]}
    if trained and trained.isdisjoint(model.parameters()):
        raise ValueError(
            f"model must be the model that base trains, but the {type(model).__name__} given "
            "shares no parameter with it"
        )


def check_local_ascent(model: nn.Module | None, base: Optimizer) -> None:
    """Each process can keep its own ascent gradient: a DDP module, and no shards."""
    if not callable(getattr(model, "no_sync", None)):
        raise ValueError(
            "sync_ascent=False needs model= to be a DistributedDataParallel module, "
            f"not {type(model).__name__}"
        )
    if any(is_sharded(parameter) for group in base.param_groups for parameter in group["params"]):
        raise ValueError("sync_ascent=False needs whole parameters, but base has sharded ones")
