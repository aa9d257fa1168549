"""One training step: the ascent pass, the descent pass, and the base optimizer's move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.optim import Optimizer

from friendly_sam import SharpnessAware
from friendly_sam.batchnorm import frozen_statistics
from friendly_sam.lab.ascent import Images
from friendly_sam.lab.config import RunConfig
from friendly_sam.lab.distributed import unreduced
from friendly_sam.lab.passes import Backward, Tally, pieces


class Stepper:
    """Takes one step of any method.

    Loss and hits are counted once a step, in its first pass, which is at w: that is the
    ascent pass where there is one (over the ascent's images) and the descent pass otherwise.

    Args:
        config: the run.
        optimizer: the base optimizer, or `SharpnessAware` over it.
        backward: computes gradients.
        full_gradient: the ascent closure of SAM-full.
    """

    def __init__(
        self,
        config: RunConfig,
        optimizer: Optimizer,
        backward: Backward,
        full_gradient: Callable[[Tally | None], Tensor] | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.backward = backward
        self.micro = config.engine.micro_batches
        self.clip_norm = config.engine.clip_norm
        self.full_gradient = full_gradient
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def __call__(self, own: Images, ascent: Images | None, tally: Tally) -> None:
        """Take a step on the batch `own`, climbing on `ascent` (`None`: on `own` too)."""
        counting: Tally | None = tally

        def once() -> Tally | None:
            nonlocal counting
            current, counting = counting, None
            return current

        def descend() -> Tensor:
            return self.backward(pieces(own.pairs, self.micro), own.count, once())

        climb: Callable[[], Tensor] | None = None
        if self.full_gradient is not None:
            full_gradient = self.full_gradient

            def climb() -> Tensor:
                return full_gradient(once())

        elif ascent is not None:
            apart = ascent

            def climb() -> Tensor:
                return self.backward(pieces(apart.pairs, self.micro), apart.count, once())

        if self.backward.scaler.is_enabled():
            self._scaled(descend, climb)
        else:
            self._plain(descend, climb)

    def _plain(self, descend: Callable[[], Tensor], climb: Callable[[], Tensor] | None) -> None:
        optimizer = self.optimizer
        if not isinstance(optimizer, SharpnessAware):
            optimizer.zero_grad()
            descend()
            self._clip()
            optimizer.step()
            return
        # Without a closure of its own the ascent calls `descend` too, first and at w.
        to_come = 1 if optimizer.ascent_due and climb is None else 0

        def closure() -> Tensor:
            nonlocal to_come
            loss = descend()
            if to_come == 0:
                self._clip()
            to_come -= 1
            return loss

        optimizer.step(closure, ascent=climb)

    def _scaled(self, descend: Callable[[], Tensor], climb: Callable[[], Tensor] | None) -> None:
        """Take a step with scaled losses: the same passes, written out."""
        optimizer, scaler = self.optimizer, self.backward.scaler
        optimizer.zero_grad()
        if isinstance(optimizer, SharpnessAware) and optimizer.ascent_due:
            with unreduced(self.backward.forward) if not optimizer.sync_ascent else nullcontext():
                if climb is None:
                    descend()
                else:
                    with frozen_statistics(optimizer.model):
                        climb()
            with optimizer.perturbed(scaler=scaler, freeze_statistics=climb is None):
                descend()
        else:
            descend()
        if self.clip_norm is not None:
            scaler.unscale_(optimizer)
            self._clip()
        scaler.step(optimizer)
        scaler.update()

    def _clip(self) -> None:
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
