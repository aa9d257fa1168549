from __future__ import annotations

import pytest
import torch

from friendly_sam.lab.config.schema import ScheduleConfig
from friendly_sam.lab.training.schedule import lr_factor


def test_cosine_is_torchs() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
    for step in range(40):
        factor = lr_factor(ScheduleConfig(), step, steps=40, steps_per_epoch=10)
        assert factor == pytest.approx(scheduler.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        scheduler.step()


def test_steps_fall_at_their_shares() -> None:
    config = ScheduleConfig(name="step", milestones=(0.5, 0.75), gamma=0.1)
    factors = [lr_factor(config, step, steps=8, steps_per_epoch=1) for step in range(8)]
    assert factors == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])


def test_warm_up_climbs_then_hands_over() -> None:
    config = ScheduleConfig(name="constant", warmup_epochs=2)
    factors = [lr_factor(config, step, steps=10, steps_per_epoch=2) for step in range(6)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    cosine = ScheduleConfig(warmup_epochs=2)
    assert lr_factor(cosine, 4, steps=10, steps_per_epoch=2) == 1
