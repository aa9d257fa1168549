"""Promise 7: gradients that are missing, zero, not finite or sparse."""

import pytest
import torch
from family import FAMILY, assert_same, closure_of, momentum, network, weights
from torch import nn

from friendly_sam import SAM, BatchNoise, Euclidean, Every, FriendlySAM, SharpnessAware

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


@pytest.mark.parametrize("method", FAMILY)
def test_a_parameter_without_a_first_gradient_stays_where_it_is(method):
    used, unused = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
    optimizer = FAMILY[method](torch.optim.SGD([used, unused], lr=0.1))
    before = unused.detach().clone()
    for _ in range(3):
        loss = optimizer.step(lambda: (used**3).sum().backward())
        assert loss is None
    assert torch.equal(unused, before)
    assert unused not in optimizer.memory.tensors("ema")


@pytest.mark.parametrize("method", FAMILY)
def test_a_parameter_without_a_second_gradient_comes_back(method):
    a, b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
    optimizer = FAMILY[method](torch.optim.SGD([a, b], lr=0.1))
    ((a * b) ** 2).sum().backward()
    before = b.detach().clone()
    with optimizer.perturbed():
        (a**2).sum().backward()
    optimizer.step()
    assert torch.equal(b, before)


@pytest.mark.parametrize("method", FAMILY)
def test_a_parameter_with_a_second_gradient_only_is_stepped(method):
    a, b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
    optimizer = FAMILY[method](torch.optim.SGD([a, b], lr=0.1))
    (a**2).sum().backward()
    before = b.detach().clone()
    with optimizer.perturbed():
        ((a * b) ** 2).sum().backward()
        assert torch.equal(b, before)
    optimizer.step()
    assert not torch.equal(b, before)


@pytest.mark.parametrize("method", FAMILY)
def test_frozen_parameters_are_left_alone(method):
    model = network()
    model[0].requires_grad_(False)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model)
    before = weights(model[0])
    for seed in range(3):
        optimizer.step(closure_of(model, seed))
    assert_same(weights(model[0]), before)


@pytest.mark.parametrize("method", FAMILY)
def test_no_gradient_at_all_changes_nothing_and_warns_once(method):
    """A closure without backward(), or perturbed() before it: nothing would ever be learned."""
    model = network()
    optimizer = FAMILY[method](momentum(model.parameters()))
    before = weights(model)
    with pytest.warns(UserWarning, match="found no gradient to perturb along"):
        optimizer.step(lambda: None)
    optimizer.step(lambda: None)
    with optimizer.perturbed():
        pass
    optimizer.step()
    assert_same(weights(model), before)


@pytest.mark.parametrize("method", FAMILY)
def test_a_zero_gradient_gives_no_perturbation_and_no_nan(method):
    model = network()
    optimizer = FAMILY[method](momentum(model.parameters()))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    before = weights(model)
    with optimizer.perturbed():
        assert_same(weights(model), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_direction_that_is_rounding_noise_counts_as_zero(dtype):
    """The same gradient over and over: g - m tends to rounding noise, which is no direction."""
    parameter = nn.Parameter(torch.randn(50, dtype=dtype))
    optimizer = FriendlySAM(torch.optim.SGD([parameter], lr=0.0), 0.1, decay=0.5)
    gradient, before = torch.randn(50, dtype=dtype), parameter.detach().clone()
    moved = []
    for _ in range(80):
        parameter.grad = gradient.clone()
        with optimizer.perturbed():
            moved.append(not torch.equal(parameter, before))
        optimizer.step()
    assert moved[0]
    assert not any(moved[60:])


@pytest.mark.parametrize("method", FAMILY)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_first_gradient_that_is_not_finite_moves_neither_weights_nor_average(method, value):
    model = network()
    optimizer = FAMILY[method](momentum(model.parameters()))
    for seed in range(2):
        optimizer.step(closure_of(model, seed))
    before = weights(model)
    averages = [m.clone() for m in optimizer.memory.tensors("ema").values()]
    updates = dict(optimizer.memory.updates)
    optimizer.zero_grad()
    closure_of(model, 2)()
    next(iter(model.parameters())).grad[0, 0] = value
    with optimizer.perturbed():
        assert_same(weights(model), before)
        closure_of(model, 2)()
    assert_same(optimizer.memory.tensors("ema").values(), averages)
    assert optimizer.memory.updates == updates


@pytest.mark.parametrize("variant", ["paper", "authors", "debiased"])
def test_an_average_does_not_take_in_a_gradient_that_is_not_finite_on_a_skipped_step(variant):
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()), variant=variant, when=Every(2))
    optimizer.step(closure_of(model, 0))
    averages = [m.clone() for m in optimizer.memory.tensors("ema").values()]
    for p in model.parameters():
        p.grad = torch.full_like(p, float("nan"))
    optimizer.step()
    assert_same(optimizer.memory.tensors("ema").values(), averages)


def test_a_parameter_that_joins_late_starts_its_average_then():
    """Each average counts for itself: `authors` starts from the first gradient it sees."""
    a, b = (nn.Parameter(torch.randn(3, dtype=torch.float64)) for _ in range(2))
    direction = BatchNoise(0.5, 0.9, "authors")
    optimizer = SharpnessAware(
        torch.optim.SGD([a, b], lr=0.1), 0.1, direction=direction, geometry=Euclidean()
    )
    a.grad = torch.randn(3, dtype=torch.float64)
    with optimizer.perturbed():
        pass
    first, late = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    a.grad, b.grad = first.clone(), late.clone()
    with optimizer.perturbed():
        pass
    assert torch.equal(optimizer.memory.tensors("ema")[b], late)
    assert not torch.equal(optimizer.memory.tensors("ema")[a], first)


def test_a_sparse_gradient_is_refused_with_the_way_out():
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = SAM(torch.optim.SGD(embedding.parameters(), lr=0.1))
    before = weights(embedding)
    with pytest.raises(TypeError, match=r'shape \(5, 3\) has a sparse gradient.*"rho": 0.0'):
        optimizer.step(lambda: embedding(torch.tensor([1, 2])).sum().backward())
    assert_same(weights(embedding), before)


def test_a_sparse_gradient_in_a_group_without_radius_is_the_base_optimizers_business():
    embedding, linear = nn.Embedding(5, 3, sparse=True), nn.Linear(3, 2)
    groups = [
        {"params": list(linear.parameters())},
        {"params": list(embedding.parameters()), "rho": 0.0},
    ]
    optimizer = SAM(torch.optim.SGD(groups, lr=0.1))
    before = weights(embedding)
    optimizer.step(lambda: linear(embedding(torch.tensor([1, 2]))).square().sum().backward())
    assert not torch.equal(embedding.weight, before[0])
