"""Running statistics that move once a step, although the model runs twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from friendly_sam._machinery.interrupts import Guard, sealed


class frozen_statistics:  # noqa: N801 (a context manager, used like a function)
    """Inside, normalisation layers of `model` use batch statistics but do not record them.

    Only layers that would record are touched: those in training mode with
    `track_running_stats`. Their flags come back on the way out, exceptions included.

    Example:
        >>> import torch
        >>> from friendly_sam import frozen_statistics
        >>> layer = torch.nn.BatchNorm1d(2)
        >>> with frozen_statistics(layer):
        ...     _ = layer(torch.randn(8, 2))
        >>> layer.running_mean.tolist(), layer.num_batches_tracked.item()
        ([0.0, 0.0], 0)
    """

    def __init__(self, model: nn.Module | None) -> None:
        self._model = model
        self._guard = Guard()
        self._batch: list[_BatchNorm] = []
        self._instance: list[tuple[_InstanceNorm, float | None]] = []

    @sealed
    def __enter__(self) -> None:
        try:
            self._guard.holding = True
            self._guard.on()
            self.freeze()
            self._guard.holding = False
            self._guard.deliver()
        except BaseException:
            self.__exit__()
            raise

    @sealed
    def __exit__(self, *_: object) -> None:
        try:
            self.thaw()
        finally:
            self._guard.off()

    def run(self, function: Callable[[], Any]) -> Any:
        """Call `function` inside, and return what it returns."""
        try:
            with self:
                return function()
        finally:  # where a signal came between the function and the way out
            self.__exit__()

    def freeze(self) -> None:
        """Set the flags, each noted before it is touched."""
        for module in self._model.modules() if self._model is not None else ():
            if isinstance(module, _InstanceNorm):
                if module.training and module.track_running_stats:
                    self._instance.append((module, module.momentum))
                    module.momentum = 0.0  # instance_norm looks at the momentum only
            elif isinstance(module, _BatchNorm) and module.training and module.track_running_stats:
                self._batch.append(module)
                module.track_running_stats = False

    @sealed
    def thaw(self) -> None:
        """Bring the flags back."""
        for module in self._batch:
            module.track_running_stats = True
        for layer, momentum in self._instance:
            layer.momentum = momentum
        self._batch, self._instance = [], []
