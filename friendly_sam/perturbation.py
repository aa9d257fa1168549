"""A perturbation: the context in which the weights are w + ε, and the way back, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from friendly_sam._machinery.blocks import local
from friendly_sam._machinery.interrupts import Guard, sealed
from friendly_sam.ascent import Moved
from friendly_sam.batchnorm import frozen_statistics


def _used(*_: object) -> Any:
    raise RuntimeError("this perturbation has ended")


class Perturbation:
    """The context in which the weights are w + ε. `SharpnessAware.perturbed` makes it.

    Args:
        ascend: moves the weights, noting in the list it is given what may have moved, and
            returns the parameters with their backups.
        finish: what is done after the way back, if nothing was raised inside.
        model: whose running statistics are frozen inside; None for none.
        name: gives a parameter's name, for an error.
    """

    def __init__(
        self,
        ascend: Callable[[Moved], list[tuple[Tensor, Tensor]]],
        finish: Callable[[], None],
        model: nn.Module | None,
        name: Callable[[Tensor], str],
    ) -> None:
        self._ascend: Callable[[Moved], list[tuple[Tensor, Tensor]]] = ascend
        self._finish: Callable[[], None] = finish
        self._name = name
        self._statistics = frozen_statistics(model)
        self._guard = Guard()
        self._moved: Moved = []
        self._away: list[tuple[Tensor, Tensor]] = []
        self.active = False
        """Whether the weights are away."""

    @sealed
    def __enter__(self) -> None:
        if self._ascend is _used:
            raise RuntimeError("a context of perturbed() can be entered once: call it again")
        try:
            self._guard.holding = True
            self._guard.on()
            self.active = True
            self._away = self._ascend(self._moved)
            self._moved.clear()
            self._statistics.freeze()
            self._guard.holding = False
            self._guard.deliver()
        except BaseException:
            self.give_up()
            raise

    @sealed
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.end()
        else:
            self.give_up()

    def run(self, closure: Callable[[], Any]) -> Any:
        """Call `closure` inside, and return what it returns."""
        try:
            with self:
                return closure()
        finally:
            if self.active:  # where an exception came between the closure and the way back
                self.give_up()

    def begin(self) -> None:
        """Enter, for a loop that calls `end` later; meanwhile nothing guards the weights."""
        self.__enter__()
        self._guard.off()

    @sealed
    def end(self) -> None:
        """Come back to w, and make of g' what the base optimizer gets."""
        self._guard.holding = True
        self._guard.on()
        try:
            self.restore()
            self._finish()
        finally:
            self._ascend, self._finish = _used, _used  # which hold on to parameters
            self._guard.off()

    @sealed
    def give_up(self) -> None:
        """Come back to w and leave everything else."""
        self._guard.holding = True
        try:
            self.restore()
        finally:
            self._ascend, self._finish = _used, _used
            self._guard.off()

    @torch.no_grad()
    @sealed
    def restore(self) -> None:
        """Bring back w, unless that is done: in the same storage, or in what replaced it."""
        self._statistics.thaw()
        for weights, backups in self._moved:
            torch._foreach_copy_(weights, backups)
        lost: list[tuple[Tensor, Tensor]] = []
        back: dict[tuple[object, ...], tuple[list[Tensor], list[Tensor]]] = {}
        for parameter, backup in self._away:
            weight = local(parameter)
            if weight.shape != backup.shape:
                lost.append((parameter, backup))
                continue
            pair = back.setdefault((weight.device, weight.dtype), ([], []))
            pair[0].append(weight)
            pair[1].append(backup)
        for pair in back.values():
            torch._foreach_copy_(*pair)
        self._moved.clear()
        self._away = []
        self.active = False
        if lost:
            names = ", ".join(f"{self._name(p)} of shape {tuple(b.shape)}" for p, b in lost)
            raise RuntimeError(
                "the weights are back at w, but for those that were resized inside perturbed(): "
                + names
            )
