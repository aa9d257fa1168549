"""Running statistics that move once a step, although the model runs twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm


@contextmanager
def frozen_statistics(model: nn.Module | None) -> Iterator[None]:
    """Inside, normalisation layers of `model` use batch statistics but do not record them.

    Only layers that would record are touched: those in training mode with
    `track_running_stats`. Their flags come back on the way out, exceptions included.

    Example:
        >>> import torch
        >>> from friendly_sam.batchnorm import frozen_statistics
        >>> layer = torch.nn.BatchNorm1d(2)
        >>> with frozen_statistics(layer):
        ...     _ = layer(torch.randn(8, 2))
        >>> layer.running_mean.tolist(), layer.num_batches_tracked.item()
        ([0.0, 0.0], 0)
    """
    batch, instance = [], []
    for module in model.modules() if model is not None else ():
        if isinstance(module, _InstanceNorm):
            if module.training and module.track_running_stats:
                instance.append((module, module.momentum))
        elif isinstance(module, _BatchNorm) and module.training and module.track_running_stats:
            batch.append(module)
    try:
        for module in batch:
            module.track_running_stats = False
        for module, _ in instance:  # instance_norm looks at the momentum only
            module.momentum = 0.0
        yield
    finally:
        for module in batch:
            module.track_running_stats = True
        for module, momentum in instance:
            module.momentum = momentum
