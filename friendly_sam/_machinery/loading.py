"""A `state_dict` is looked at whole before anything of it is taken."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from friendly_sam._machinery.blocks import local
from friendly_sam._machinery.checks import check_count, check_number, short
from friendly_sam._machinery.memory import EMA, UPDATES, VECTORS

Vectors = dict[str, dict[Tensor, Tensor]]

_SHAPED = {
    "momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg",
    "grad_avg", "sum", "acc_delta", "prev", "step_size", "ax",
}  # fmt: skip
"""What torch's optimizers keep in the shape of the parameter."""

_ADAM = ("step", "exp_avg", "exp_avg_sq")
_NEEDED = {
    "Adam": _ADAM, "AdamW": _ADAM, "NAdam": (*_ADAM, "mu_product"), "RAdam": _ADAM,
    "Adamax": ("step", "exp_avg", "exp_inf"), "Adagrad": ("step", "sum"),
    "RMSprop": ("step", "square_avg"), "Adadelta": ("step", "square_avg", "acc_delta"),
    "Rprop": ("step", "prev", "step_size"),
}  # fmt: skip
"""What they cannot step without, once a parameter has a state."""


def split_state_dict(
    state_dict: Any, base: Optimizer, own: Mapping[str, str]
) -> tuple[dict[str, Any], Vectors, dict[Tensor, int]]:
    """Return the base optimizer's part of `state_dict`, the vectors, and the counts of updates.

    Args:
        state_dict: what is to be loaded.
        base: the base optimizer that it is to be loaded into.
        own: keys of the wrapper in a group, and what each is: "radius", "count" or "number".

    Raises:
        ValueError: in one line that names the key, if anything does not fit.
    """
    groups, needed = base.param_groups, base.defaults
    saved_groups = _member(state_dict, "param_groups", list)
    states = dict(_member(state_dict, "state", dict))
    if len(saved_groups) != len(groups):
        raise ValueError(
            f"state_dict has {len(saved_groups)} parameter groups, but this optimizer has "
            f"{len(groups)}"
        )
    vectors: Vectors = {}
    updates: dict[Tensor, int] = {}
    for index, (saved, group) in enumerate(zip(saved_groups, groups, strict=True)):
        _check_group(saved, group, own, needed, f'state_dict["param_groups"][{index}]')
        for key, parameter in zip(saved["params"], group["params"], strict=True):
            where = f'state_dict["state"][{key!r}]'
            entry = states.get(key, {})
            if not isinstance(entry, Mapping):
                raise ValueError(f"{where} must be a dictionary, not {type(entry).__name__}")
            entry = dict(entry)
            for name in VECTORS:
                if name in entry:
                    vector = entry.pop(name)
                    _check_vector(vector, parameter, f'{where}["{name}"]')
                    vectors.setdefault(name, {})[parameter] = vector
            if UPDATES in entry:
                count = _integer(entry.pop(UPDATES), f'{where}["{UPDATES}"]')
                if parameter in vectors.get(EMA, {}):
                    updates[parameter] = count
            missing = [name for name in _NEEDED.get(type(base).__name__, ()) if name not in entry]
            if entry and missing:
                raise ValueError(f'{where} lacks "{missing[0]}"')
            for name, value in entry.items():
                _check_base_entry(name, value, parameter, f'{where}["{name}"]')
            states[key] = {name: _lasting(value) for name, value in entry.items()}
            if not entry:
                del states[key]
    return {**state_dict, "state": states}, vectors, updates


def _member(state_dict: Any, name: str, kind: type) -> Any:
    if not isinstance(state_dict, Mapping):
        raise ValueError(f"state_dict must be a dictionary, not {type(state_dict).__name__}")
    value = state_dict.get(name)
    if not isinstance(value, kind):
        found = "missing" if name not in state_dict else f"a {type(value).__name__}"
        raise ValueError(f'state_dict["{name}"] must be a {kind.__name__}, but is {found}')
    return value


def _check_group(
    saved: Any,
    group: Mapping[str, Any],
    own: Mapping[str, str],
    needed: Collection[str],
    where: str,
) -> None:
    if not isinstance(saved, Mapping) or not isinstance(saved.get("params"), (list, tuple)):
        raise ValueError(f'{where} must be a dictionary with a list "params"')
    if len(saved["params"]) != len(group["params"]):
        raise ValueError(
            f"{where} has {len(saved['params'])} parameters, but this optimizer's group has "
            f"{len(group['params'])}"
        )
    if any(not isinstance(key, (int, str)) for key in saved["params"]) or len(
        set(saved["params"])
    ) != len(set(group["params"])):
        raise ValueError(f'{where}["params"] must be the numbers or names of parameters')
    for name, value in saved.items():
        label = f'{where}["{name}"]'
        try:
            if own.get(name) == "radius":
                check_number(label, value, at_least=0)
            elif own.get(name) == "count":
                check_count(label, value, at_least=0)
            elif own.get(name) == "number":
                check_number(label, value)
        except TypeError as error:
            raise ValueError(str(error)) from None
        if name not in own and name in group and name != "params":
            _check_alike(value, group[name], label)
    for name in needed:
        if name not in saved:
            raise ValueError(f'{where} lacks "{name}"')


def _check_alike(value: Any, present: Any, where: str) -> None:
    """`value` is of the kind of the setting that is there now."""
    if _is_number(present):
        if not _is_number(value) or not math.isfinite(_float(value)):
            raise ValueError(f"{where} must be a finite number, not {_short(value)}")
    elif isinstance(present, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(present):
            raise ValueError(f"{where} must be {len(present)} values, not {_short(value)}")
        for item, other in zip(value, present, strict=True):
            _check_alike(item, other, where)
    elif isinstance(present, bool) or present is None:
        if not (value is None or isinstance(value, bool) or _is_number(value)):
            raise ValueError(f"{where} must be true, false or None, not {_short(value)}")
    elif isinstance(present, str) and not isinstance(value, str):
        raise ValueError(f"{where} must be a string, not {_short(value)}")


def _check_vector(value: Any, parameter: Tensor, where: str) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{where} must be a tensor, not {_short(value)}")
    if value.layout != torch.strided:
        raise ValueError(f"{where} must be a dense tensor, not one of layout {value.layout}")
    if value.is_complex() != parameter.is_complex() or not (
        value.is_floating_point() or value.is_complex()
    ):
        wanted = "complex" if parameter.is_complex() else "floating-point"
        raise ValueError(f"{where} must be a {wanted} tensor, not one of {value.dtype}")
    if value.device.type == "meta" and parameter.device.type != "meta":
        raise ValueError(f"{where} must hold numbers, but is on the meta device")
    if value.shape != parameter.shape:
        raise ValueError(
            f"{where} must be of shape {tuple(parameter.shape)}, not {tuple(value.shape)}"
        )
    if value.device.type != "meta" and not local(value).isfinite().all():
        raise ValueError(f"{where} must be finite")


def _check_base_entry(name: str, value: Any, parameter: Tensor, where: str) -> None:
    """An entry of torch's own optimizers is of its kind; others' are not known here."""
    if name == "step":
        number = value if _is_number(value) else None
        if number is None or not 0 <= _float(number) < math.inf:
            raise ValueError(f"{where} must be a number of steps, not {_short(value)}")
    elif name in _SHAPED and not (name == "momentum_buffer" and value is None):
        _check_vector(value, parameter, where)


def _integer(value: Any, where: str) -> int:
    number = _float(value) if _is_number(value) else math.nan
    if not (number >= 0 and number == int(number) if math.isfinite(number) else False):
        raise ValueError(f"{where} must be an integer >= 0, not {_short(value)}")
    return int(number)


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return (
            value.numel() == 1
            and value.device.type != "meta"
            and not value.is_complex()
            and value.layout == torch.strided
        )
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _lasting(value: Any) -> Any:
    """Copy what was made in inference mode, which no later step could change."""
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
    return f"{type(value).__name__} {short(value)}"
