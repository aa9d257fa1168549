"""One training step: the ascent pass, the descent pass, and the update of the base optimizer.

There is one path: without mixed precision the gradient scaler is disabled and does nothing.
"""

from __future__ import annotations

from contextlib import ExitStack

import torch
from torch import Tensor
from torch.optim import Optimizer

from friendly_sam import SharpnessAware
from friendly_sam.batchnorm import frozen_statistics
from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.training.ascent_batches import Samples
from friendly_sam.lab.training.distributed import World, unreduced
from friendly_sam.lab.training.generators import generator_states, set_generator_states
from friendly_sam.lab.training.gradients import Backward
from friendly_sam.lab.training.tally import Tally


class TrainingStep:
    """Takes one step of any method.

    Loss and accuracy are counted once per step, in its first pass, which is at w: that is the
    ascent pass where there is one (over the samples of the ascent) and the descent pass otherwise;
    a method without an ascent pass has its only pass at w + ε.

    Args:
        config: the run.
        optimizer: the base optimizer, or `SharpnessAware` over it.
        backward: computes gradients.
    """

    def __init__(self, config: RunConfig, optimizer: Optimizer, backward: Backward) -> None:
        self.optimizer = optimizer
        self.backward = backward
        self.micro_batches = config.engine.micro_batches
        self.clip_norm = config.engine.clip_norm
        self.ascent_pass = METHODS[config.method.name].ascent != "none"
        self.replay_rng = config.method.replay_rng
        self.perturbed_loss: Tensor | None = None
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def __call__(self, batch: Samples, ascent: Samples | None, tally: Tally) -> None:
        """Take a step on a batch; its ascent is on `ascent` (`None`: on the batch too)."""
        optimizer, scaler = self.optimizer, self.backward.scaler
        optimizer.zero_grad()
        if isinstance(optimizer, SharpnessAware) and optimizer.ascent_due:
            generators = generator_states(self.backward.device) if self.replay_rng else None
            if self.ascent_pass:
                self._ascent_pass(optimizer, batch if ascent is None else ascent, ascent, tally)
            freeze = self.ascent_pass and ascent is None
            with optimizer.perturbed(scaler=scaler, freeze_statistics=freeze):
                if generators is not None:
                    set_generator_states(generators, self.backward.device)
                self.perturbed_loss = self._gradient(batch, None if self.ascent_pass else tally)
        else:
            self.perturbed_loss = None
            self._gradient(batch, tally)
            # Before clipping, so that the EMA takes in the raw gradient.
            getattr(optimizer, "skip", lambda **_: None)(scaler=scaler)
        if self.clip_norm is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        scaler.step(optimizer)
        scaler.update()

    def _ascent_pass(
        self, optimizer: SharpnessAware, samples: Samples, apart: Samples | None, tally: Tally
    ) -> None:
        """Compute the gradient at w; on samples of its own it leaves running statistics alone."""
        with ExitStack() as stack:
            if not optimizer.sync_ascent:
                stack.enter_context(unreduced(self.backward.forward))
            if apart is not None:
                stack.enter_context(frozen_statistics(optimizer.model))
            self._gradient(samples, tally)

    def _gradient(self, samples: Samples, tally: Tally | None = None) -> Tensor:
        return self.backward(samples.pieces(self.micro_batches), samples.count, tally)

    def perturbation(self, here: World) -> dict[str, float]:
        """Return ||ε|| and the loss at w + ε of the last step; nothing where it was not perturbed.

        Reading them waits for the device, so the trainer does it once per epoch.
        """
        if self.perturbed_loss is None or not isinstance(self.optimizer, SharpnessAware):
            return {}
        return {
            "perturbation_norm": self.optimizer.last.perturbation_norm,
            "perturbed_loss": here.sum(self.perturbed_loss.detach().clone()).item() / here.size,
        }
