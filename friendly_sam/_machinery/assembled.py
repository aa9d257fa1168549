"""Components over a base optimizer: checked, set at any time, printed, copied."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from friendly_sam._machinery import checks
from friendly_sam._machinery.names import parameter_names, picked_by_name
from friendly_sam._machinery.wrapper import Wrapper
from friendly_sam.descents import Descent
from friendly_sam.directions import Direction
from friendly_sam.geometries import Geometry
from friendly_sam.perturbation import Perturbation
from friendly_sam.policies import Policy

AXES = {"direction": Direction, "geometry": Geometry, "descent": Descent, "when": Policy}


class Assembled(Wrapper):
    """A base optimizer with a component of each axis, which go with it and with each other."""

    direction: Direction
    geometry: Geometry
    descent: Descent
    when: Policy
    model: nn.Module | None
    sync_ascent: bool
    replay_rng: bool
    counts_radius_0 = False
    """Whether groups with radius 0 are counted in the norm, as davda54/sam does."""
    _perturbation: Perturbation | None = None
    _picked: tuple[object, set[Tensor]] | None = None

    def __init__(
        self, base: Optimizer, rho: float, axes: dict[str, Any], options: dict[str, Any]
    ) -> None:
        checks.check_base(base)
        checks.check_number("rho", rho, at_least=0)
        checks.check_model(options["model"], base)
        for name, component in axes.items():
            checks.check_component(name, component, AXES[name])
        checks.check_fit({"base": base, **axes, **options})
        super().__init__(base, rho)
        vars(self).update(axes, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in AXES:
            checks.check_component(name, value, AXES[name])
            checks.check_fit({**vars(self), name: value})
        super().__setattr__(name, value)

    def refuse_inside(self, what: str) -> None:
        """Refuse what must not be done while the weights are away."""
        if self._perturbation is not None and self._perturbation.active:
            raise RuntimeError(
                f"{what} was called inside perturbed(), or between first_step() and second_step(): "
                "it cannot be nested, so leave the context first"
            )

    def check_fit(self) -> None:
        """Refuse groups that do not go with the settings."""
        checks.check_fit(vars(self))
        self._picked = None  # names may have come

    def scales(self, group: dict[str, Any], parameter: Tensor) -> bool:
        """Whether the geometry applies to a parameter, by its name."""
        only = self.geometry.only
        if only is None:
            return True
        if self._picked is None or self._picked[0] is not only:
            self._picked = (only, picked_by_name(only, self.model, self.param_groups))
        return parameter in self._picked[1]

    def _name(self, parameter: Tensor) -> str:
        return parameter_names(self.model, self.param_groups).get(parameter, "a parameter")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_perturbation": None}

    def __repr__(self) -> str:
        axes = "".join(f"  {name}={getattr(self, name)!r},\n" for name in AXES)
        base = repr(self.base).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n{axes}  base={base}\n)"
