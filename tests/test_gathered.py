"""Blocks that stay from step to step: never when anything but the gradients has changed."""

import copy
import gc
import weakref

import pytest
import torch
from family import FAMILY, assert_same, momentum, weights
from torch import nn

from friendly_sam import Euclidean, FriendlySAM, Residual, SharpnessAware
from friendly_sam.blocks import Gathered

STEPS = 4


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 3))
    model.register_parameter("complex", nn.Parameter(torch.randn(4, 4, dtype=torch.complex64)))
    return model


def gradients(model, step):
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.grad = drawn.to(parameter.dtype)


def other_radius(model, optimizer):
    optimizer.param_groups[0]["rho"] = 0.3


def a_group_with_radius_zero(model, optimizer):
    optimizer.param_groups[1]["rho"] = 0.0


def one_gradient_less(model, optimizer):
    model[2].weight.grad = None


def other_memory(model, optimizer):
    model[2].weight.data = model[2].weight.data.clone() + 1


def other_shape(model, optimizer):
    bias = model[3].bias
    bias.data, bias.grad = bias.data[:2], torch.ones(2)
    optimizer.memory.averages.pop(bias, None)


def other_strides(model, optimizer):
    model.complex.data = model.complex.data.t()


def other_dtype(model, optimizer):
    model.double()
    gradients(model, 9)


def other_order_in_memory(model, optimizer):
    weight = model[0].weight
    weight.grad = weight.grad.contiguous(memory_format=torch.channels_last)


def other_averages(model, optimizer):
    averages = optimizer.memory.averages
    averages.update({parameter: average + 1 for parameter, average in averages.items()})


def a_loaded_state(model, optimizer):
    state = optimizer.state_dict()
    for own in state["state"].values():
        if "ema" in own:
            own["ema"] = own["ema"] * 2
    optimizer.load_state_dict(state)


def another_group(model, optimizer):
    extra = nn.Parameter(torch.ones(7))
    extra.grad = torch.ones(7)
    model.register_parameter("extra", extra)
    optimizer.add_param_group({"params": [extra]})


def parameters_change_places(model, optimizer):
    first, second = (group["params"] for group in optimizer.param_groups)
    first[0], second[0] = second[0], first[0]


def nothing(model, optimizer):
    pass


CHANGES = [
    nothing, other_radius, a_group_with_radius_zero, one_gradient_less, other_memory, other_shape,
    other_strides, other_dtype, other_order_in_memory, other_averages, a_loaded_state,
    another_group, parameters_change_places,
]  # fmt: skip


def perturbed_weights(method, change, *, forget, monkeypatch):
    model = network()
    first, *others = model.parameters()
    base = momentum([{"params": [first], "rho": 0.2}, {"params": others}])
    optimizer = FAMILY[method](base)
    filled = []
    fill = Gathered.fill

    def counting(self, *arguments):
        filled.append(fill(self, *arguments))
        return filled[-1]

    monkeypatch.setattr(Gathered, "fill", counting)
    seen = []
    for step in range(STEPS):
        gradients(model, step)
        if step == 2:
            change(model, optimizer)
        if forget:
            optimizer._gathered = None
        with optimizer.perturbed():
            seen += weights(model)
    monkeypatch.undo()
    return seen, filled


@pytest.mark.parametrize("method", ["SAM", "F-SAM", "F-ASAM", "F-SAM authors", "F-SAM debiased"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_never_overlooked(change, method, monkeypatch):
    seen, filled = perturbed_weights(method, change, forget=False, monkeypatch=monkeypatch)
    expected, _ = perturbed_weights(method, change, forget=True, monkeypatch=monkeypatch)
    assert_same(seen, expected)
    if method == "F-SAM":
        assert any(filled)
        kept = filled == [True] * (STEPS - 1)
        assert kept == (change in (nothing, other_memory))


@pytest.mark.parametrize("method", ["SAM", "F-SAM"])
def test_no_gradient_is_kept_between_the_passes(method):
    model = network()
    optimizer = FAMILY[method](momentum(model.parameters()))
    for step in range(3):
        gradients(model, step)
        kept = [weakref.ref(parameter.grad) for parameter in model.parameters()]
        with optimizer.perturbed():
            gc.collect()
            assert not [gradient for gradient in kept if gradient() is not None]


def large(size):
    """A parameter of several pieces, and an optimizer that has taken two steps with it."""
    parameter = nn.Parameter(torch.randn(size, size))
    optimizer = FriendlySAM(momentum([parameter]))
    for step in range(2):
        climb(parameter, optimizer, step)
    return parameter, optimizer


def climb(parameter, optimizer, step):
    torch.manual_seed(step)
    parameter.grad = torch.randn_like(parameter)
    with optimizer.perturbed():
        return parameter.detach().clone()


def test_between_steps_nothing_holds_a_parameters_memory():
    parameter, optimizer = large(1100)
    torch.utils.swap_tensors(parameter, nn.Parameter(torch.zeros(1100, 1100)))
    storage = weakref.ref(parameter.data.untyped_storage())
    climb(parameter, optimizer, 2)
    parameter.data = torch.zeros(2, 2)
    gc.collect()
    assert storage() is None


def test_memory_that_was_given_back_is_not_touched():
    parameter, optimizer = large(1100)
    saved = parameter.data.double()
    parameter.data.untyped_storage().resize_(0)  # as in offloading
    parameter.data = saved.float()
    perturbed = climb(parameter, optimizer, 2)
    assert torch.equal(parameter.data, saved.float())
    assert (perturbed - parameter.data).norm().item() == pytest.approx(0.05, rel=1e-3)


def test_a_loaded_state_leaves_no_old_average_behind():
    parameter, optimizer = large(8)
    old = weakref.ref(optimizer.memory.averages[parameter])
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    gc.collect()
    assert old() is None


@pytest.mark.filterwarnings("ignore:SharpnessAware found no gradient")
def test_the_reference_is_taken_at_each_step_also_where_nothing_climbs():
    parameter, calls = nn.Parameter(torch.ones(3)), []
    direction = Residual(lambda: calls.append(1))
    optimizer = SharpnessAware(
        momentum([parameter]), 0.1, direction=direction, geometry=Euclidean()
    )
    for _ in range(3):
        with optimizer.perturbed():
            pass
    assert len(calls) == 3


def test_a_parameter_that_the_reference_does_not_reach_keeps_its_gradient():
    reached, other = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))
    direction = Residual(lambda: (reached * torch.tensor([1.0, 0.0, 0.0])).sum().backward())
    base = momentum([reached, other])
    optimizer = SharpnessAware(base, 2.0, direction=direction, geometry=Euclidean())
    for _ in range(2):
        reached.grad, other.grad = torch.ones(3), torch.ones(2)
        with optimizer.perturbed():
            assert_same([reached.detach()], [torch.tensor([0.0, 1.0, 1.0])])
            assert_same([other.detach()], [torch.ones(2)])
