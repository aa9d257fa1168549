"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from friendly_sam.lab.config.schema import ScheduleConfig


def lr_factor(config: ScheduleConfig, step: int, *, steps: int, steps_per_epoch: int) -> float:
    """Return the factor on the base learning rate for `step` (from 0) of `steps`.

    `cosine` is (1 + cos(pi * t)) / 2 with t the share of the run that lies behind, updated
    each step; a warm-up of n steps uses (step + 1) / n and the rest of the run follows the
    schedule over the steps that remain.
    """
    warmup = round(config.warmup_epochs * steps_per_epoch)
    if step < warmup:
        return (step + 1) / warmup
    share = (step - warmup) / max(1, steps - warmup)
    if config.name == "cosine":
        return (1 + math.cos(math.pi * share)) / 2
    if config.name == "step":
        return config.gamma ** sum(share >= milestone for milestone in config.milestones)
    return 1.0
