"""The names of parameters, as a user knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

COMPILED = "_orig_mod."
"""What torch.compile puts before the names of a module that it wraps."""


def parameter_names(
    model: nn.Module | None, param_groups: list[dict[str, Any]]
) -> dict[Tensor, str]:
    """Names from `model`, and from groups of an optimizer that was given `named_parameters()`."""
    names: dict[Tensor, str] = {}
    for group in param_groups:
        names.update(zip(group["params"], group.get("param_names", ()), strict=False))
    if isinstance(model, DistributedDataParallel):
        model = model.module
    if model is not None:
        names.update((parameter, name) for name, parameter in model.named_parameters())
    return {parameter: name.replace(COMPILED, "") for parameter, name in names.items()}


def picked_by_name(
    only: Callable[[str], bool], model: nn.Module | None, param_groups: list[dict[str, Any]]
) -> set[Tensor]:
    """Return the parameters whose names `only` picks."""
    names = parameter_names(model, param_groups)
    parameters = [parameter for group in param_groups for parameter in group["params"]]
    missing = sum(parameter not in names for parameter in parameters)
    if missing:
        raise ValueError(
            f"only={only!r} picks parameters by name, but {missing} of them have none: pass "
            "model=, or build the base optimizer with model.named_parameters()"
        )
    return {parameter for parameter in parameters if only(names[parameter])}
