"""Promises 6 and 7: odd gradients x recipes x with and without a GradScaler.

Each perturbation and each EMA is held against a naive reference in float64, which sees clones of
the gradients (issue 21, lines 1 and 12).
"""

import pytest
import torch
from family import FAMILY, assert_same
from reference import Reference
from torch import nn

SHAPES = ((4,), (2, 2), (3, 2, 2, 2))
SCALE = 2.0**10
RHO = 0.1
SETTINGS = {
    "SAM": {},
    "ASAM": {"geometry": "parameter", "eta": 0.01},
    "FisherSAM": {"geometry": "fisher", "eta": 1.0},
    "F-SAM": {"sigma": 1.0},
    "F-SAM authors": {"sigma": 1.0, "variant": "authors"},
    "F-SAM debiased": {"sigma": 1.0, "variant": "debiased"},
    "F-SAM projection": {"sigma": "projection"},
    "F-ASAM": {"sigma": 1.0, "geometry": "parameter", "eta": 0.01},
    "F-FisherSAM": {"sigma": 1.0, "geometry": "fisher", "eta": 1.0},
    "VaSSO": {"theta": 0.4},
    "VaSSO, ASAM's geometry": {"theta": 0.4, "geometry": "parameter", "eta": 0.01},
    "GSAM": {},
    "WSAM": {},
    "LookSAM": {},
    "F-GSAM": {"sigma": 1.0},
}
scaled = pytest.mark.parametrize("scale", [1.0, SCALE], ids=["plain", "scaled"])


class Naive(Reference):
    """`Reference` in float64 and on real numbers; a direction of nothing but rounding is zero."""

    def __init__(self, theta=None, **settings):
        super().__init__(RHO, **settings)
        self.theta = theta

    def perturbation(self, weights, gradients):
        weights, gradients = list(map(exact, weights)), list(map(exact, gradients))
        d = self.direction([g.clone() for g in gradients])
        t = [self.scale(w, g) for w, g in zip(weights, gradients)]
        norm = norm_of([t * d for t, d in zip(t, d)])
        if norm_of(d) <= 1e-6 * norm_of(gradients) or norm == 0:
            return [torch.zeros_like(x) for x in d]
        return [self.rho * t**2 * d / norm for t, d in zip(t, d)]

    def direction(self, gradients):
        if self.theta is None:
            return super().direction(gradients)
        old = self.m or gradients
        self.m = [(1 - self.theta) * m + self.theta * g for m, g in zip(old, gradients)]
        return self.m


def exact(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().clone()
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.contiguous().double()


def norm_of(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors]).norm()


# -- the kinds of gradients: each sets `.grad` of parameters of SHAPES ------------------------


def each(change):
    def set_gradients(parameters, gradients):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = change(gradient)

    return set_gradients


def autograd_shares(parameters, gradients):
    """`(p.view(2, 2) + q.view(2, 2))`: autograd gives p and q one gradient."""
    p, q, r = parameters
    scale = gradients[2].flatten()[0].abs()
    loss = (p.view(2, 2) + q.view(2, 2)).square().sum() * scale + (r * gradients[2]).sum()
    loss.backward()
    assert p.grad.data_ptr() == q.grad.data_ptr()


def one_for_two(parameters, gradients):
    p, q, r = parameters
    p.grad, r.grad = gradients[0], gradients[2]
    q.grad = gradients[0].view(2, 2)


def overlapping(parameters, gradients):
    p, q, r = parameters
    buffer = torch.cat([gradients[0], gradients[1].flatten()])
    p.grad, q.grad, r.grad = buffer[:4], buffer[2:6].view(2, 2), gradients[2]


def missing(parameters, gradients):
    parameters[0].grad, parameters[2].grad = gradients[0], gradients[2]


def of_another_dtype(parameters, gradients):
    if not hasattr(nn.Parameter, "grad_dtype"):
        pytest.skip("this torch has one dtype for a parameter and its gradient")
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad_dtype = None
        parameter.grad = gradient.double()


def sized(*sizes):
    def set_gradients(parameters, gradients):
        for parameter, gradient, size in zip(parameters, gradients, sizes, strict=True):
            parameter.grad = gradient * size

    return set_gradients


KINDS = {
    "ordinary": each(lambda g: g),
    "shared by autograd": autograd_shares,
    "one for two parameters": one_for_two,
    "overlapping": overlapping,
    "expanded": each(lambda g: g.flatten()[0].expand(g.shape)),
    "expanded in part": each(lambda g: g[:1].expand(g.shape)),
    "negated": each(torch._neg_view),
    "conjugated": each(lambda g: torch.complex(g, g.flip(0)).conj()),
    "a part of a conjugated one": each(lambda g: torch.complex(g, g.flip(0)).conj().imag),
    "transposed": each(lambda g: g.mT.clone().mT if g.dim() > 1 else g),
    "strided": each(lambda g: torch.stack([g, g], -1)[..., 0]),
    "channels_last": each(
        lambda g: g.contiguous(memory_format=torch.channels_last) if g.dim() == 4 else g
    ),
    "of another dtype": of_another_dtype,
    "missing": missing,
    "1e-30": sized(1e-30, 1e-30, 1e-30),
    "1e-23": sized(1e-23, 1e-23, 1e-23),
    "1e+19": sized(1e19, 1e19, 1e19),
    "1e+30": sized(1e30, 1e30, 1e30),
    "1e-30 and 1e+30": sized(1e-30, 1.0, 1e30),
    "1e-30 beside 1e-10": sized(1e-30, 1e-20, 1e-10),
}


def start(method, kind="ordinary"):
    dtype = torch.complex64 if kind == "conjugated" else torch.float32
    generator = torch.Generator().manual_seed(1)
    parameters = [
        nn.Parameter(0.1 * torch.randn(shape, generator=generator, dtype=dtype)) for shape in SHAPES
    ]
    return parameters, FAMILY[method](torch.optim.SGD(parameters, lr=0.1), RHO)


def drawn(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(shape, generator=generator) for shape in SHAPES]


def scaler_of(scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0)
    scaler.scale(torch.ones(()))  # creates the scale
    return scaler


def ascent(parameters, optimizer, scale):
    """The perturbation of the gradients that are there, with everything brought back."""
    before = [parameter.detach().clone() for parameter in parameters]
    with optimizer.perturbed(scaler=scaler_of(scale)):
        inside = [parameter.detach().clone() for parameter in parameters]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
    assert_same([parameter.detach() for parameter in parameters], before)
    optimizer.zero_grad()  # so that the step moves nothing
    optimizer.step()
    return [exact(x) - exact(w) for x, w in zip(inside, before, strict=True)]


def emas(optimizer):
    return [m.clone() for m in optimizer.memory.tensors("ema").values()]


# -- the table ------------------------------------------------------------------------------


@scaled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", FAMILY)
def test_an_odd_gradient_does_what_a_clone_of_it_would_do(method, kind, scale):
    parameters, optimizer = start(method, kind)
    reference = Naive(**SETTINGS[method])
    for seed in range(3):
        KINDS[kind](parameters, drawn(seed, scale))
        having = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [exact(parameter.grad) / scale for parameter in having]
        expected = reference.perturbation(having, gradients)
        moved = ascent(parameters, optimizer, scale)
        wanted = iter(expected)
        expected = [next(wanted) if any(p is h for h in having) else None for p in parameters]
        expected = [torch.zeros_like(x) if e is None else e for x, e in zip(moved, expected)]
        error = norm_of([x - e for x, e in zip(moved, expected)])
        assert error <= 1e-4 * norm_of(expected) + 1e-7
        if reference.m is not None:
            kept = optimizer.memory.tensors("ema")
            for parameter, m in zip(having, reference.m, strict=True):
                torch.testing.assert_close(exact(kept[parameter]), m, rtol=1e-4, atol=0)


@scaled
@pytest.mark.parametrize("method", FAMILY)
def test_subnormal_gradients_perturb_along_themselves_or_not_at_all(method, scale):
    parameters, optimizer = start(method)
    reference = Naive(**SETTINGS[method])
    for seed in range(3):
        sized(1e-42, 1e-42, 1e-42)(parameters, drawn(seed, scale))
        gradients = [exact(parameter.grad) / scale for parameter in parameters]
        expected = reference.perturbation(parameters, gradients)
        moved = ascent(parameters, optimizer, scale)
        assert norm_of(moved) <= 1.05 * norm_of(expected) + 1e-6
        along = sum((x * e).sum() for x, e in zip(moved, expected))
        cosine = along / (norm_of(moved) * norm_of(expected)).clamp(min=1e-30)
        assert norm_of(moved) == 0 or cosine > 0.9


@scaled
@pytest.mark.parametrize("method", FAMILY)
def test_a_zero_gradient_perturbs_nothing(method, scale):
    parameters, optimizer = start(method)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    assert norm_of(ascent(parameters, optimizer, scale)) == 0
    assert all(m.isfinite().all() for m in emas(optimizer))


@scaled
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", ["ordinary", "shared by autograd", "expanded", "negated"])
@pytest.mark.parametrize("method", FAMILY)
def test_a_gradient_that_is_not_finite_perturbs_nothing(method, kind, value, scale):
    parameters, optimizer = start(method)
    for seed in range(2):
        KINDS["ordinary"](parameters, drawn(seed, scale))
        ascent(parameters, optimizer, scale)
    before = emas(optimizer)
    gradients = drawn(2, scale)
    gradients[2].view(-1)[0] = value
    KINDS[kind](parameters, gradients)
    assert norm_of(ascent(parameters, optimizer, scale)) == 0
    assert_same(emas(optimizer), before)


@scaled
@pytest.mark.parametrize("method", FAMILY)
def test_a_sparse_gradient_is_refused_with_nothing_changed(method, scale):
    parameters, optimizer = start(method)
    KINDS["ordinary"](parameters, drawn(0, scale))
    ascent(parameters, optimizer, scale)
    before, weights = emas(optimizer), [parameter.detach().clone() for parameter in parameters]
    KINDS["ordinary"](parameters, drawn(1, scale))
    parameters[1].grad = torch.eye(2).to_sparse()
    with pytest.raises(TypeError, match="sparse"):
        ascent(parameters, optimizer, scale)
    assert_same([parameter.detach() for parameter in parameters], weights)
    assert_same(emas(optimizer), before)
    optimizer.zero_grad()
    KINDS["ordinary"](parameters, drawn(2, scale))
    assert norm_of(ascent(parameters, optimizer, scale)) > 0
