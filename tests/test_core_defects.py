"""What an attack on the first core found, a test a line (issue 21; its lines 1, 3, 8 and 12 have
files of their own: test_odd_gradient_table.py, test_signals.py, test_state_fuzz.py)."""

import copy
import gc
import pickle
import warnings
import weakref
from collections import defaultdict

import pytest
import torch
from family import assert_same, batch, closure_of, momentum, network, train, weights
from torch import nn
from torch.nn import functional as F

from friendly_sam import (
    ASAM,
    SAM,
    BatchNoise,
    Euclidean,
    FriendlySAM,
    ParameterScaled,
    SharpnessAware,
    compat,
)

REFUSALS = (ValueError, TypeError, RuntimeError, AttributeError)


def plain(params):
    return torch.optim.SGD(params, lr=0.1)


def refused(call, *words):
    """Whether `call` is refused: then in one line that has one of the words."""
    try:
        call()
    except REFUSALS as error:
        message = str(error)
    else:
        return False
    assert "\n" not in message
    assert any(word in message for word in words), message
    return True


# -- line 2: data replaced inside perturbed() -------------------------------------------------

REPLACED = {
    "a clone": lambda p: p.data.clone(),
    "another dtype": lambda p: p.data.to(torch.complex128 if p.is_complex() else torch.float64),
    "channels_last": lambda p: p.data.contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("how", REPLACED)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((4, 3, 2, 2), torch.float32),
        ((4, 3, 2, 2), torch.complex64),
        ((1025, 1024, 1, 1), torch.float32),
    ],
    ids=["small", "complex", "large"],
)
def test_weights_come_back_where_their_data_was_replaced_inside(how, shape, dtype):
    """Line 2: tensors above 2^20 elements and complex ones stayed at w + eps in silence."""
    replaced, other = nn.Parameter(torch.randn(shape, dtype=dtype)), nn.Parameter(torch.randn(5))
    optimizer = FriendlySAM(plain([replaced, other]), 0.5)
    before = [replaced.detach().clone(), other.detach().clone()]
    for parameter in (replaced, other):
        parameter.grad = torch.randn_like(parameter)
    with optimizer.perturbed():
        assert not torch.equal(replaced, before[0])
        replaced.data = REPLACED[how](replaced)
        other.grad = torch.randn_like(other)
    assert_same([replaced.detach(), other.detach()], [before[0].to(replaced.dtype), before[1]])


def test_a_weight_that_cannot_come_back_is_named_and_the_others_do():
    """Line 2: one resized tensor stranded all the others, and every later step was refused."""
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()), model=model)
    closure_of(model, 0)()
    before = weights(model)
    with pytest.raises((ValueError, RuntimeError, UserWarning), match=r"2\.weight|\(3, 16\)"):
        with optimizer.perturbed():
            model[2].weight.data = torch.zeros(7, dtype=torch.float64)
    after = weights(model)
    assert_same(after[:2] + after[3:], before[:2] + before[3:])
    model[2].weight.data = before[2].clone()
    optimizer.zero_grad()
    train(model, optimizer, 2)
    assert not torch.equal(model[2].weight, before[2])


# -- line 4: GradScaler -----------------------------------------------------------------------


def test_unscaling_before_perturbed_is_right_or_refused():
    """Line 4: who clips the first gradient took a step that was 1,000 times too long."""

    def step(model, scaler):
        optimizer = FriendlySAM(plain(model.parameters()))
        x, y = batch(0, dtype=torch.float32)
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        with optimizer.perturbed(scaler=scaler):
            scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()

    model = network(torch.float32)
    wanted, before = copy.deepcopy(model), weights(model)
    step(wanted, torch.amp.GradScaler("cpu", enabled=False))
    if refused(lambda: step(model, torch.amp.GradScaler("cpu", init_scale=2.0**10)), "unscale_"):
        assert_same(weights(model), before)
    else:
        for a, b in zip(weights(model), weights(wanted), strict=True):
            torch.testing.assert_close(a, b)


# -- line 5: values that are not finite after the geometry or the EMA ---------------------------


def three_steps(optimizer, parameter, size):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        gradient = (size * torch.randn(parameter.shape, generator=generator)).to(parameter.dtype)
        parameter.grad = gradient.clone()
        with optimizer.perturbed():
            assert parameter.isfinite().all(), "at w + eps"
            parameter.grad = gradient.clamp(-1, 1)
        optimizer.step()
        assert parameter.isfinite().all()


@pytest.mark.parametrize(
    ("dtype", "large"), [(torch.float16, 300.0), (torch.float32, 1e20)], ids=["fp16", "fp32"]
)
@pytest.mark.parametrize("eta", [0.0, 0.01])
def test_asam_with_a_large_weight_leaves_finite_weights(dtype, large, eta):
    """Line 5: T^2 overflows where T does not."""
    parameter = nn.Parameter(torch.randn(50).to(dtype))
    parameter.data[0] = large
    three_steps(ASAM(plain([parameter]), eta=eta), parameter, 1.0)


def test_a_narrow_ema_that_overflows_leaves_finite_weights():
    """Line 5: an EMA in float16 with large gradients."""
    parameter = nn.Parameter(torch.randn(50))
    direction = BatchNoise(dtype=torch.float16)
    optimizer = SharpnessAware(plain([parameter]), 0.1, direction=direction, geometry=Euclidean())
    three_steps(optimizer, parameter, 1e7)


def test_a_nan_in_the_ema_leaves_finite_weights():
    """Line 5: the check belongs after the direction, not before."""
    parameter = nn.Parameter(torch.randn(50))
    optimizer = FriendlySAM(plain([parameter]))
    three_steps(optimizer, parameter, 1.0)
    optimizer.memory.tensors("ema")[parameter][3] = float("nan")
    three_steps(optimizer, parameter, 1.0)


# -- line 6: copies -------------------------------------------------------------------------

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_inside_perturbed_is_refused_or_sits_at_w(way):
    """Line 6: the copy sat at w + eps and refused every step."""
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()), model=model)
    before, copies = weights(model), []
    closure_of(model, 0)()
    with optimizer.perturbed():
        no = refused(lambda: copies.append(COPIES[way]((model, optimizer))), "copying", "perturb")
        closure_of(model, 0)()
    assert_same(weights(model), before)
    optimizer.step()
    if not no:
        ((other, copied),) = copies
        assert_same(weights(other), before)
        train(other, copied, 2)


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_between_the_two_steps_is_refused_or_sits_at_w(way):
    """Line 6: the copy stepped from w + eps in silence."""
    model = network()
    optimizer = compat.SAM(model.parameters(), torch.optim.SGD, lr=0.1)
    before, copies = weights(model), []
    closure_of(model, 0)()
    optimizer.first_step(zero_grad=True)
    no = refused(lambda: copies.append(COPIES[way]((model, optimizer))), "copying", "first_step")
    closure_of(model, 0)()
    optimizer.second_step(zero_grad=True)
    if not no:
        ((other, _),) = copies
        assert_same(weights(other), before)


# -- line 7: settings -------------------------------------------------------------------------


def inside(optimizer, model):
    closure_of(model, 0)()
    with optimizer.perturbed():
        closure_of(model, 0)()
        return weights(model)


def test_a_geometry_that_is_assigned_later_is_honoured_or_refused():
    """Line 7: `only=` was ignored."""
    model = network()
    geometry = ParameterScaled(only=lambda name: "weight" in name)
    base = torch.optim.SGD(model.named_parameters(), lr=0.1)
    optimizer = ASAM(base, 0.5)
    if refused(lambda: setattr(optimizer, "geometry", geometry), "geometry"):
        return
    got = inside(optimizer, model)
    optimizer.zero_grad()
    fresh = torch.optim.SGD(model.named_parameters(), lr=0.1)
    assert_same(got, inside(ASAM(fresh, 0.5, only=geometry.only), model))


def test_groups_that_are_assigned_are_honoured_or_refused():
    model = network()
    optimizer = SAM(momentum(model.parameters()))
    groups = [{**group, "lr": 0.0, "weight_decay": 0.0} for group in optimizer.param_groups]
    if not refused(lambda: setattr(optimizer, "param_groups", groups), "param_groups"):
        before = weights(model)
        train(model, optimizer, 1)
        assert_same(weights(model), before)


def test_a_state_that_is_assigned_is_honoured_or_refused():
    model = network()
    optimizer = SAM(momentum(model.parameters()))
    train(model, optimizer, 2)
    if not refused(lambda: setattr(optimizer, "state", defaultdict(dict)), "state"):
        assert not optimizer.base.state


def test_a_scheduler_drives_the_groups_that_the_base_has_loaded():
    """Line 7: it drove those that the wrapper held before."""
    model = network()
    base = plain(model.parameters())
    optimizer = SAM(base)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    train(model, optimizer, 1)
    base.load_state_dict(base.state_dict())
    scheduler.step()
    assert base.param_groups[0]["lr"] == pytest.approx(0.01)
    train(model, optimizer, 1)
    assert base.param_groups[0]["lr"] == pytest.approx(0.01)


def test_a_second_wrapper_over_the_same_base_has_its_own_radius_or_is_refused():
    """Line 7: it kept the first one's."""
    base = plain(network().parameters())
    SAM(base, 0.1)
    second = []
    if not refused(lambda: second.append(SAM(base, 0.2)), "rho", "wrap"):
        assert second[0].param_groups[0]["rho"] == 0.2


# -- line 9: inference mode, resized parameters -------------------------------------------------


def test_a_state_that_was_loaded_under_inference_mode_can_be_used():
    """Line 9: every later step failed."""
    model = network()
    optimizer = FriendlySAM(plain(model.parameters()))
    train(model, optimizer, 2)
    with torch.inference_mode():
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, 2)


def test_a_first_ascent_under_inference_mode_is_refused_or_does_no_harm():
    """Line 9."""
    model = network()
    optimizer = FriendlySAM(plain(model.parameters()))
    closure_of(model, 0)()

    def first():
        with torch.inference_mode(), optimizer.perturbed():
            model[0].bias.grad = torch.ones(16, dtype=torch.float64)

    refused(first, "inference")
    optimizer.zero_grad()
    train(model, optimizer, 2)


def test_a_resized_parameter_starts_its_ema_anew_or_is_refused_with_nothing_changed():
    """Line 9: pruning failed every step, with the EMA half updated."""
    pruned, other = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(3))
    optimizer = FriendlySAM(plain([other, pruned]))

    def step():
        optimizer.step(lambda: ((pruned**3).sum() + (other**3).sum()).backward())

    step()
    pruned.data = pruned.data[:2].clone()
    pruned.grad = None
    before = [other.detach().clone(), pruned.detach().clone()]
    ema = optimizer.memory.tensors("ema")[other].clone()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        no = refused(step, "shape", "(2,)")
    if no:
        assert_same([other.detach(), pruned.detach()], before)
        assert torch.equal(optimizer.memory.tensors("ema")[other], ema)
        return
    assert any("(2,)" in str(each.message) for each in seen)
    assert optimizer.memory.tensors("ema")[pruned].shape == (2,)
    step()


# -- line 10: what is let go --------------------------------------------------------------------


@pytest.mark.parametrize("then", ["step", "load_state_dict"])
def test_a_parameter_that_is_removed_from_its_group_is_freed(then):
    """Line 10: EMA and backup kept it alive."""
    parameters = [nn.Parameter(torch.randn(4)) for _ in range(2)]
    optimizer = FriendlySAM(plain(parameters))

    def step():
        optimizer.step(lambda: sum((p**3).sum() for p in parameters).backward())

    step()
    gone = weakref.ref(parameters.pop())
    del optimizer.param_groups[0]["params"][1]
    if then == "step":
        step()
    else:
        optimizer.load_state_dict(optimizer.state_dict())
    gc.collect()
    assert gone() is None


def test_a_radius_that_is_set_to_zero_drops_its_ema():
    """Line 10, and the documentation: a group with radius 0 keeps no EMA."""
    model = network()
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[2].parameters())}]
    optimizer = FriendlySAM(plain(groups))
    train(model, optimizer, 2)
    optimizer.param_groups[1]["rho"] = 0.0
    train(model, optimizer, 1)
    assert set(optimizer.memory.tensors("ema")) == set(model[0].parameters())
    assert "ema" not in optimizer.state_dict()["state"].get(2, {})
