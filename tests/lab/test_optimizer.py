"""Which parameters climb, and what the average is kept in."""

from __future__ import annotations

import pytest
import torch
from lab_runs import Tiny, final_state

from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.models import build
from friendly_sam.lab.training.optimizer import build_optimizer
from friendly_sam.lab.training.trainer import train


@pytest.mark.parametrize("layers", ["norm", "last"])
def test_only_the_layers_asked_for_climb(layers: str, tiny: Tiny) -> None:
    config = resolve(tiny(method={"name": "fsam", "layers": layers}, model="cnn"))
    model = build("cnn", classes=10, in_channels=1, image_size=8)
    optimizer = build_optimizer(config, model, steps=100)
    names = {parameter: name for name, parameter in model.named_parameters()}
    climbing, rest = optimizer.param_groups
    assert rest["rho"] == 0
    assert climbing["rho"] == config.method.rho
    assert len(climbing["params"]) + len(rest["params"]) == len(names)
    found = {names[parameter] for parameter in climbing["params"]}
    if layers == "last":
        assert found == set(list(names.values())[-2:])
    else:
        norms = {
            f"{name}.{part}"
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.BatchNorm2d)
            for part in ("weight", "bias")
        }
        assert found == norms


def test_a_network_without_layers_of_normalisation_is_told_apart(tiny: Tiny) -> None:
    with pytest.raises(LabError, match=r"method\.layers=norm: the network has no such layers"):
        train(tiny(method={"name": "sam", "layers": "norm"}, model="mlp"))


def test_the_average_can_be_kept_in_bfloat16(tiny: Tiny) -> None:
    state = final_state(train(tiny(method={"name": "fsam", "average": "bf16"})))
    averages = [values["ema"] for values in state["optimizer"]["state"].values()]
    assert averages
    assert all(average.dtype == torch.bfloat16 for average in averages)
