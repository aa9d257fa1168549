"""Calls that ended in a bare Python error or left things half done (issue 21, line 11)."""

import pytest
import torch
from family import closure_of, network, train, weights
from test_core_defects import plain, refused
from torch import nn

from friendly_sam import ASAM, SAM, BatchNoise, Euclidean, FriendlySAM, SharpnessAware

HUGE = 10**400


def test_a_group_that_is_refused_is_not_added():
    """It was in the base already when its names turned out to be missing."""
    model = network()
    optimizer = ASAM(plain(model.parameters()), only=lambda name: "weight" in name, model=model)
    train(model, optimizer, 1)
    for rho in (0.1, -1.0, "x", HUGE):
        with pytest.raises((ValueError, TypeError), match=r"only|rho"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "rho": rho})
        assert len(optimizer.base.param_groups) == len(optimizer.param_groups) == 1
    train(model, optimizer, 1)


def test_a_group_that_was_added_to_the_base_can_be_loaded_into():
    """It ended in KeyError: 'rho'."""

    def start():
        model = network()
        optimizer = FriendlySAM(plain(model[0].parameters()), 0.1)
        optimizer.base.add_param_group({"params": list(model[2].parameters())})
        return model, optimizer

    model, optimizer = start()
    train(model, optimizer, 2)
    other, resumed = start()
    resumed.load_state_dict(optimizer.state_dict())
    assert [group["rho"] for group in resumed.param_groups] == [0.1, 0.1]
    train(other, resumed, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_an_ema_dtype_for_complex_parameters_works_or_is_refused(dtype):
    parameter = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def run():
        direction = BatchNoise(dtype=dtype)
        optimizer = SharpnessAware(
            plain([parameter]), 0.1, direction=direction, geometry=Euclidean()
        )
        for _ in range(3):
            optimizer.step(lambda: (parameter * parameter.conj()).real.sum().backward())

    if not refused(run, "dtype", "complex"):
        assert parameter.isfinite().all()


@pytest.mark.parametrize("method", [SAM, FriendlySAM])
def test_the_default_device_makes_no_difference(method):
    """Under `torch.device("meta")` scalars of the step were made there."""
    results = []
    for device in ("cpu", "meta"):
        torch.manual_seed(0)
        model = network(batchnorm=True)
        closures = [closure_of(model, seed) for seed in range(3)]
        optimizer = method(plain(model.parameters()), model=model)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        with torch.device(device):
            optimizer.step(closures[0])
            optimizer.zero_grad()
            closures[1]()
            with torch.device("cpu"):
                scaler.scale(torch.ones(()))
            with optimizer.perturbed(scaler=scaler):
                closures[1]()
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
            optimizer.step(closures[2])
        results.append(weights(model))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def group_of(rho):
    return {"params": [nn.Parameter(torch.ones(1))], "rho": rho}


@pytest.mark.parametrize(
    "call",
    [
        lambda: SAM(plain(network().parameters()), HUGE),
        lambda: SAM(plain([group_of(HUGE)])),
        lambda: SAM(plain(network().parameters())).add_param_group(group_of(HUGE)),
        lambda: ASAM(plain(network().parameters()), eta=HUGE),
        lambda: FriendlySAM(plain(network().parameters()), sigma=HUGE),
    ],
    ids=["rho", "a group", "add_param_group", "eta", "sigma"],
)
def test_a_number_that_is_no_float_is_refused(call):
    with pytest.raises(ValueError, match=r"(rho|eta|sigma).* must be a finite number") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_radius_that_is_no_float_is_refused_at_the_step():
    model = network()
    optimizer = SAM(plain(model.parameters()))
    optimizer.param_groups[0]["rho"] = HUGE
    with pytest.raises(ValueError, match="rho"):
        optimizer.step(closure_of(model, 0))


@pytest.mark.parametrize("scaler", ["x", 1024.0, torch.tensor(1024.0)])
def test_a_scaler_that_is_none_is_refused(scaler):
    model = network()
    optimizer = FriendlySAM(plain(model.parameters()))
    closure_of(model, 0)()
    before = weights(model)
    with pytest.raises(TypeError, match="scaler") as caught, optimizer.perturbed(scaler=scaler):
        pass
    assert "\n" not in str(caught.value)
    for a, b in zip(weights(model), before, strict=True):
        assert torch.equal(a, b)
    train(model, optimizer, 1)
