"""An optimizer that has the groups and the state of its base, and a memory of its own."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from friendly_sam._machinery.checks import check_number
from friendly_sam._machinery.groups import CLOCK, MEAN, VARIANCE, Groups
from friendly_sam._machinery.inference import ordinary_mode
from friendly_sam._machinery.loading import split_state_dict
from friendly_sam._machinery.memory import Memory


class Wrapper(Optimizer):
    """Groups and state are the base's at any time, whoever replaces them there."""

    def __init__(self, base: Optimizer, rho: float) -> None:
        groups = Groups(base, rho)
        super().__init__(base.param_groups, {**base.defaults, groups.key: float(rho), CLOCK: 0})
        self.base, self.groups, self.memory = base, groups, Memory()

    def refuse_inside(self, what: str) -> None:
        """Refuse what must not be done while the weights are away."""

    def check_fit(self) -> None:
        """Refuse groups that do not go with the settings."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the base optimizer."""
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        if "base" in self.__dict__:  # else it is Optimizer.__init__ that asks
            self.base.param_groups = groups
            self.groups.fill()

    @property
    def state(self) -> Any:
        """The state of the base optimizer; the wrapper's own is in `memory`."""
        return self.base.state

    @state.setter
    def state(self, state: Any) -> None:
        if "base" in self.__dict__:
            self.base.state = state

    @property
    def radius_key(self) -> str:
        """The key of a group under which its radius is."""
        return self.groups.key

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapper and its base; its radius is `rho` unless it has its own."""
        if "base" not in self.__dict__:
            return
        radius = param_group.get(self.radius_key, self.groups.rho)
        check_number(f'param_group["{self.radius_key}"]', radius, at_least=0)
        self.base.add_param_group(param_group)
        try:
            self.check_fit()
        except BaseException:
            self.base.param_groups.pop()
            raise
        self.groups.fill()

    def state_dict(self) -> dict[str, Any]:
        """The base's state, the EMA and other vectors, radii, counters, in torch's own layout."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        state_dict = self.memory.merge_into(self.base.state_dict(), self.groups.parameters())
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            state_dict = post_hook(self, state_dict) or state_dict
        return state_dict

    @ordinary_mode
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave, or that of a plain base optimizer, to go on from it.

        What does not fit is refused in one line, and then nothing has changed.
        """
        self.refuse_inside("load_state_dict()")
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        own = {self.radius_key: "radius", CLOCK: "count", MEAN: "number", VARIANCE: "number"}
        loaded = split_state_dict(state_dict, self.base, own)
        before = [{key: group[key] for key in own if key in group} for group in self.param_groups]
        present = self.base.state, self.base.param_groups
        try:
            self.base.load_state_dict(loaded[0])
        except BaseException:
            self.base.state, self.base.param_groups = present
            raise
        self.memory.replace(*loaded[1:])
        for group, settings in zip(self.param_groups, before, strict=True):
            for key, value in settings.items():
                group.setdefault(key, value)
        self.groups.fill()
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __getstate__(self) -> dict[str, Any]:
        self.refuse_inside("copying or pickling the optimizer")
        return {
            key: value
            for key, value in self.__dict__.items()
            if key != "step" and not key.startswith("_optimizer_")
        }
