"""`--engine.decomposition n`: what the perturbation is made of, every n epochs, as metrics."""

from __future__ import annotations

from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from friendly_sam import SharpnessAware
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.data import Batches
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.training.distributed import World
from friendly_sam.lab.training.streams import Streams
from friendly_sam.sharpness import Objective, decompose_step


class DecompositionLog:
    """Norms and cosines of minibatch gradient, EMA and full gradient.

    They are taken at the end of an epoch, for the batch that the next epoch starts with, against
    the gradient over all training images, not augmented; BatchNorm uses the statistics of each
    batch, as in training. Training is not touched: a run with this log is, bit for bit, the run
    without.
    """

    def __init__(
        self, config: RunConfig, model: nn.Module, optimizer: Optimizer, streams: Streams
    ) -> None:
        self.every = config.engine.decomposition
        self.model, self.optimizer, self.streams = model, optimizer, streams

    def check(self, here: World) -> None:
        """Refuse what it cannot do, before any work is done."""
        if self.every and here.size > 1:
            raise LabError("engine.decomposition works with one process only")
        if self.every and not isinstance(self.optimizer, SharpnessAware):
            raise LabError("engine.decomposition needs a method that perturbs, not base")

    def __call__(self, epoch: int) -> dict[str, float]:
        """Return the metrics after epoch `epoch` (from 0); nothing when none are due."""
        if not self.every or (epoch + 1) % self.every:
            return {}
        if not isinstance(self.optimizer, SharpnessAware):
            return {}
        whole = Pairs(self.streams.whole)
        objective = Objective(self.model, F.cross_entropy, whole, mode="batch", check=False)
        batch = next(self.streams.train.epoch(epoch + 1))
        return decompose_step(objective, self.optimizer, tuple(batch[:2])).metrics()


class Pairs:
    """Batches as pairs of images and labels, that can be gone through again."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.batches.epoch(0):
            yield batch.images, batch.labels
