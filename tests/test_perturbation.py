"""The formula: promise 6, and the fast path against the slow reference."""

import pytest
import torch
from family import FAMILY, batch, closure_of, momentum, network, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference, residual
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from friendly_sam import (
    SAM,
    BatchNoise,
    DiagonalFisher,
    Euclidean,
    FriendlySAM,
    Gradient,
    ParameterScaled,
    Residual,
    SharpnessAware,
    Stale,
)
from friendly_sam._machinery.reductions import squared_norm
from friendly_sam._machinery.tensors import Tensors

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


DIRECTIONS = {
    "gradient": (Gradient(), {}),
    **{
        f"{variant}, sigma {sigma}": (
            BatchNoise(sigma, 0.7, variant),
            {"sigma": sigma, "decay": 0.7, "variant": variant},
        )
        for variant in ("paper", "authors", "debiased")
        for sigma in (0.5, 1.0, "projection")
    },
}
GEOMETRIES = {
    "euclidean": (Euclidean(), {}),
    "parameter": (ParameterScaled(0.01), {"geometry": "parameter", "eta": 0.01}),
    "fisher": (DiagonalFisher(2.0), {"geometry": "fisher", "eta": 2.0}),
}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_perturbation_is_that_of_the_reference(direction, geometry):
    direction, geometry = DIRECTIONS[direction], GEOMETRIES[geometry]
    model = network()
    optimizer = SharpnessAware(
        momentum(model.parameters()), 0.1, direction=direction[0], geometry=geometry[0]
    )
    reference = Reference(0.1, **direction[1], **geometry[1])
    for seed in range(6):
        optimizer.zero_grad()
        closure_of(model, seed)()
        before = weights(model)
        gradients = [p.grad.clone() for p in model.parameters()]
        expected = reference.perturbation(before, gradients)
        first_is_zero = seed == 0 and direction[0] == BatchNoise("projection", 0.7, "paper")
        if first_is_zero:  # m is a multiple of g: nothing is left of the direction
            expected = [torch.zeros_like(w) for w in before]
        with optimizer.perturbed():
            assert all(p.grad is None for p in model.parameters())
            for p, w, eps in zip(model.parameters(), before, expected, strict=True):
                torch.testing.assert_close(p.detach(), w + eps, rtol=0, atol=1e-13)
            closure_of(model, seed)()
        optimizer.step()


@pytest.mark.parametrize("friendly", [False, True])
def test_a_stale_direction_is_that_of_the_gradient_the_previous_step_descended_by(friendly):
    model = network()
    direction = Stale(BatchNoise() if friendly else Gradient())
    optimizer = SharpnessAware(momentum(model.parameters()), 0.1, direction=direction)
    reference = Reference(0.1, sigma=1.0 if friendly else None)
    previous = None
    for seed in range(4):
        before, inside, gradients = weights(model), [], []

        def closure(seed=seed, inside=inside, gradients=gradients):
            inside.extend(weights(model))
            loss = closure_of(model, seed)()
            gradients.extend(p.grad.clone() for p in model.parameters())
            return loss

        optimizer.step(closure)
        expected = [torch.zeros_like(w) for w in before]
        if previous is not None:
            expected = reference.perturbation(before, previous)
        for x, w, eps in zip(inside, before, expected, strict=True):
            torch.testing.assert_close(x, w + eps, rtol=0, atol=1e-13)
        previous = gradients


def test_residual_is_the_gradient_less_its_projection_on_the_full_gradient():
    model = network()

    def full_gradient():
        for seed in range(10):
            x, y = batch(seed)
            (F.cross_entropy(model(x), y) / 10).backward()

    full_gradient()
    full = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    optimizer = SharpnessAware(
        momentum(model.parameters()), 0.1, direction=Residual(full_gradient), geometry=Euclidean()
    )
    closure_of(model, 3)()
    d = residual([p.grad.clone() for p in model.parameters()], full)
    norm = torch.cat([x.flatten() for x in d]).norm()
    before = weights(model)
    with optimizer.perturbed():
        moved = weights(model)
    for w, x, d in zip(before, moved, d, strict=True):
        torch.testing.assert_close(x - w, 0.1 * d / norm, rtol=1e-10, atol=1e-13)
    eps = torch.cat([(x - w).flatten() for w, x in zip(before, moved, strict=True)])
    assert abs(eps @ torch.cat([f.flatten() for f in full])) < 1e-14


@given(
    data=st.data(),
    rho=st.floats(1e-3, 10),
    eta=st.floats(0, 5),
    geometry=st.sampled_from(("euclidean", "parameter", "fisher")),
    friendly=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_the_perturbation_lies_on_the_ball_and_climbs_most(data, rho, eta, geometry, friendly):
    """||T⁻¹ ε|| = ρ and <d, ε> = ρ ||T d||, for any gradient."""
    numbers = st.floats(-10, 10).filter(lambda x: abs(x) > 1e-3)
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    draw = [torch.tensor(data.draw(st.lists(numbers, min_size=n, max_size=n))) for n in sizes]
    parameters = [torch.nn.Parameter(x.double()) for x in draw]
    shapes = {
        "euclidean": Euclidean(),
        "parameter": ParameterScaled(eta),
        "fisher": DiagonalFisher(eta),
    }
    optimizer = SharpnessAware(
        torch.optim.SGD(parameters, lr=0.1),
        rho,
        direction=BatchNoise(0.5, 0.9) if friendly else Gradient(),
        geometry=shapes[geometry],
    )
    for parameter in parameters:
        values = data.draw(st.lists(numbers, min_size=len(parameter), max_size=len(parameter)))
        parameter.grad = torch.tensor(values).double()
    g = torch.cat([p.grad for p in parameters])
    w = torch.cat([p.detach().clone() for p in parameters])
    with optimizer.perturbed():
        eps = torch.cat([p.detach() for p in parameters]) - w
    d = g * (1 - 0.5 * 0.1) if friendly else g  # the first m is 0.1 g
    t = Reference(rho, geometry=geometry, eta=eta).scale(w, g)
    assert (eps / t).norm().item() == pytest.approx(rho, rel=1e-9)
    assert (d @ eps).item() == pytest.approx(rho * (t * d).norm().item(), rel=1e-9)


def test_a_large_parameter_is_worked_on_in_pieces_with_the_same_result():
    torch.manual_seed(1)
    shapes = [(1200, 1100), (3,), (700, 800)]
    parameters = [torch.nn.Parameter(torch.randn(s, dtype=torch.float64)) for s in shapes]
    gradients = [torch.randn_like(p) for p in parameters]
    optimizer = FriendlySAM(torch.optim.SGD(parameters, lr=0.1), 0.1, sigma=0.5)
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g.clone()
    before = [p.detach().clone() for p in parameters]
    expected = Reference(0.1, sigma=0.5).perturbation(before, gradients)
    with optimizer.perturbed():
        for p, w, eps in zip(parameters, before, expected, strict=True):
            torch.testing.assert_close(p.detach(), w + eps, rtol=0, atol=1e-13)


def test_parameters_and_gradients_of_different_memory_layouts():
    model = torch.nn.Conv2d(64, 128, 9).double().to(memory_format=torch.channels_last)
    optimizer = SAM(torch.optim.SGD(model.parameters(), lr=0.1), 0.1)
    model.weight.grad = torch.randn(128, 64, 9, 9, dtype=torch.float64)  # contiguous
    model.bias.grad = torch.zeros(128, dtype=torch.float64)
    before, g = weights(model), model.weight.grad.clone()
    with optimizer.perturbed():
        eps = model.weight.detach() - before[0]
    torch.testing.assert_close(eps, 0.1 * g / g.norm(), rtol=1e-10, atol=1e-13)
    assert torch.equal(model.weight, before[0])


def test_complex_parameters_climb_as_pairs_of_real_ones():
    parameter = torch.nn.Parameter(torch.randn(5, dtype=torch.complex128))
    optimizer = FriendlySAM(torch.optim.SGD([parameter], lr=0.1), 0.1, sigma=0.0)
    parameter.grad = torch.randn(5, dtype=torch.complex128)
    before, g = parameter.detach().clone(), parameter.grad.clone()
    with optimizer.perturbed():
        torch.testing.assert_close(parameter.detach(), before + 0.1 * g / g.norm())
    assert torch.equal(parameter, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_of_low_precision_gradients_are_taken_in_float32(dtype):
    """A float16 norm overflows at 65,504; a bfloat16 one is off by parts in a thousand."""
    parameter = torch.nn.Parameter(torch.zeros(4096, dtype=dtype))
    optimizer = SAM(torch.optim.SGD([parameter], lr=0.1), 1.0)
    parameter.grad = torch.full((4096,), 2000.0, dtype=dtype)  # norm 128,000
    with optimizer.perturbed():
        torch.testing.assert_close(
            parameter.detach().float(), torch.full((4096,), 1 / 64), rtol=1e-3, atol=0
        )


def test_samsung_scales_only_what_is_named_weight():
    model = network()
    optimizer = FAMILY["ASAM"](
        momentum(model.named_parameters()), 0.5, only=lambda name: "weight" in name
    )
    closure_of(model, 0)()
    before = weights(model)
    g = [p.grad.clone() for p in model.parameters()]
    t = [w.abs() + 0.01 if w.dim() == 2 else torch.ones_like(w) for w in before]
    norm = torch.cat([(t * g).flatten() for t, g in zip(t, g, strict=True)]).norm()
    with optimizer.perturbed():
        for p, w, t, g in zip(model.parameters(), before, t, g, strict=True):
            torch.testing.assert_close(p.detach(), w + 0.5 * t**2 * g / norm)


def test_the_average_can_be_kept_in_another_dtype():
    results = {}
    for dtype in (None, torch.bfloat16):
        torch.manual_seed(0)
        model = network(torch.float32)
        optimizer = SharpnessAware(
            momentum(model.parameters()),
            0.1,
            direction=BatchNoise(dtype=dtype),
            geometry=Euclidean(),
        )
        for seed in range(20):
            optimizer.step(closure_of(model, seed))
        results[dtype] = optimizer.memory.tensors("ema")
        kept = next(iter(optimizer.memory.tensors("ema").values()))
        assert kept.dtype == (dtype or torch.float32)
    for exact, rounded in zip(
        results[None].values(), results[torch.bfloat16].values(), strict=True
    ):
        torch.testing.assert_close(rounded.float(), exact, rtol=0.02, atol=2e-3)


SIZES = {"many small": [8000] * 130, "large and small": [300_000, 20, 5000], "mixed": [1, 0, 9000]}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_are_those_of_float64_within_rounding(dtype, sizes):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(size, generator=generator).to(dtype) for size in sizes]
    tensors.append(torch.randn(60, 7, 5, 5, generator=generator).to(dtype))
    tensors += [
        tensors[-1].contiguous(memory_format=torch.channels_last),
        tensors[-1].transpose(0, 2),
    ]
    tensors += [
        torch.randn(50, 50, generator=generator).to(dtype).t(),
        torch.ones((), dtype=dtype),
    ]
    expected = sum(tensor.double().square().sum() for tensor in tensors)
    found = squared_norm(Tensors(tensors))
    rounding = {torch.float32: 2e-6, torch.float64: 1e-13}  # of one sum over all it would be 7e-6
    assert found == pytest.approx(expected.item(), rel=rounding[dtype])


def test_the_norm_of_a_large_tensor_in_odd_order_takes_no_copy():
    tensor = torch.ones(2048, 4096).t()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        squared_norm(Tensors([tensor]))
    taken = max(event.self_cpu_memory_usage for event in seen.key_averages())
    assert taken < tensor.numel()


def test_gradients_of_two_dtypes_share_no_block():
    """A float16 product overflows where a float32 one does not."""
    parameters = [nn.Parameter(torch.ones(8), requires_grad=True) for _ in range(2)]
    optimizer = SAM(torch.optim.SGD(parameters, lr=0.1), rho=1.0)
    parameters[0].grad = torch.full((8,), 300.0)
    parameters[1].grad_dtype = None
    parameters[1].grad = torch.full((8,), 300.0, dtype=torch.float16)
    with optimizer.perturbed():
        for parameter in parameters:
            torch.testing.assert_close(parameter.detach(), torch.full((8,), 1.25))
