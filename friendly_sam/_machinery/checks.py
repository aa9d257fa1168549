"""Checks of what a user passes: each error names the argument, its value and what is allowed."""

from __future__ import annotations

import inspect
import math
from numbers import Real
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from friendly_sam._machinery.blocks import is_sharded
from friendly_sam._machinery.names import picked_by_name


def check_number(
    name: str,
    value: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> None:
    """`value` is a finite real number within its bounds."""
    bounds = {">=": at_least, ">": above, "<=": at_most, "<": below}
    wanted = " and ".join(
        f"{sign} {bound:g}" for sign, bound in bounds.items() if bound is not None
    )
    wanted = f"a finite number {wanted}".strip()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {wanted}, not {short(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if (
        not math.isfinite(number)
        or (at_least is not None and number < at_least)
        or (above is not None and number <= above)
        or (at_most is not None and number > at_most)
        or (below is not None and number >= below)
    ):
        raise ValueError(f"{name} must be {wanted}, not {short(value)}")


def check_count(name: str, value: object, *, at_least: int = 1) -> None:
    """`value` is an integer of at least `at_least`."""
    wanted = f"an integer >= {at_least}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {wanted}, not {short(value)}")
    if value < at_least:
        raise ValueError(f"{name} must be {wanted}, not {short(value)}")


def check_component(name: str, value: object, kind: type) -> None:
    """`value` is a component of this kind."""
    if not isinstance(value, kind):
        hint = f": write {value.__name__}()" if isinstance(value, type) else ""
        raise TypeError(f"{name} must be a friendly_sam {kind.__name__}, not {value!r}{hint}")


def check_call(cls: type, arguments: tuple[Any, ...], settings: dict[str, Any]) -> None:
    """The call is not that of davda54's or the authors' code, which would end in a riddle."""
    second = arguments[1] if len(arguments) > 1 else settings.get("base_optimizer")
    if isinstance(second, type) and issubclass(second, Optimizer):
        raise TypeError(
            f"{cls.__name__} takes an optimizer instance: write {cls.__name__}({second.__name__}"
            "(parameters, lr=...), rho=...), or import it from friendly_sam.compat, which takes "
            "parameters and a class, as davda54/sam does"
        )
    if "lmbda" in settings:
        raise TypeError(
            "lmbda is called decay here: write decay=..., or import FriendlySAM from "
            "friendly_sam.compat"
        )


def check_base(base: object) -> None:
    """`base` is an optimizer instance that can step without a closure."""
    if isinstance(base, type) and issubclass(base, Optimizer):
        raise TypeError(
            f"base must be an optimizer instance such as {base.__name__}(model.parameters()), "
            f"not the class {base.__name__}"
        )
    if hasattr(base, "refuse_inside"):
        raise TypeError(f"base must be a plain optimizer, not a {type(base).__name__}")
    if not isinstance(base, Optimizer):
        raise TypeError(
            f"base must be a torch.optim.Optimizer, not {short(base)}: write for example "
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
    if getattr(model, "static_graph", False):
        raise ValueError(
            "sync_ascent=False needs a DistributedDataParallel without static_graph=True, which "
            "expects the same reduction in every backward pass"
        )
    if any(is_sharded(parameter) for group in base.param_groups for parameter in group["params"]):
        raise ValueError("sync_ascent=False needs whole parameters, but base has sharded ones")


def check_fit(parts: dict[str, Any]) -> None:
    """The components go with the base optimizer, the model and each other."""
    base, direction, geometry = parts["base"], parts["direction"], parts["geometry"]
    if geometry.only is not None:
        picked_by_name(geometry.only, parts["model"], base.param_groups)
    if direction.starts_from == "momentum":
        check_momentum(base)
    if parts["sync_ascent"]:
        return
    check_local_ascent(parts["model"], base)
    for name, refused in (
        ("direction", direction.starts_from != "gradient"),
        ("descent", parts["descent"].needs_gradient),
        ("when", parts["when"].looks_at_gradient),
    ):
        if refused:
            raise ValueError(
                f"sync_ascent=False does not go with {name}={parts[name]!r}: each process has a "
                "gradient of its own at w, and the weights would not stay equal"
            )


def check_momentum(base: Optimizer) -> None:
    """`base` keeps a momentum that a perturbation can go along."""
    for index, group in enumerate(base.param_groups):
        if not (group.get("momentum") or group.get("betas") or group.get("beta1")):
            raise ValueError(
                f"base must keep a momentum for this direction, but group {index} of this "
                f"{type(base).__name__} has none: use SGD with momentum > 0, or Adam"
            )


def check_capture(direction: Any, when: Any) -> None:
    """What is captured in a graph can be repeated: nothing in it is decided by the host."""
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return
    for component, refused in (
        (when, not when.always),
        (direction, direction.counts_updates or direction.reference is not None),
    ):
        if refused:
            raise RuntimeError(
                f"{component!r} cannot be captured in a graph: the host decides anew on each step"
            )


def check_scaler(scaler: object) -> None:
    """`scaler` is a GradScaler."""
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(f"scaler must be a torch.amp.GradScaler or None, not {short(scaler)}")


def short(value: object) -> str:
    """Return `value` as one short line."""
    try:
        text = repr(value)
    except ValueError:  # an integer with too many digits to print
        text = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "it"
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."
