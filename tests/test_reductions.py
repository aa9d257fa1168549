"""Promise 4: special settings are known optimizers, bit for bit."""

import pytest
import torch
from family import BASES, FAMILY, assert_same, closure_of, network, weights

from friendly_sam import (
    SAM,
    BatchNoise,
    DiagonalFisher,
    Euclidean,
    Every,
    FriendlySAM,
    Gradient,
    ParameterScaled,
    SharpnessAware,
)

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


def run(build, base, steps=6, **settings):
    torch.manual_seed(3)
    model = network(dropout=0.3, batchnorm=True)
    optimizer = build(BASES[base](model.parameters()), model)
    torch.manual_seed(4)
    for seed in range(steps):
        optimizer.zero_grad()
        closure = closure_of(model, seed)
        if isinstance(optimizer, SharpnessAware):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return weights(model) + [buffer.clone() for buffer in model.buffers()]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", FAMILY)
def test_radius_zero_is_the_base_optimizer(method, base):
    """Dropout and BatchNorm included: there is one pass."""
    plain = run(lambda b, m: b, base)
    assert_same(run(lambda b, m: FAMILY[method](b, 0.0, model=m), base), plain)


@pytest.mark.parametrize("variant", ["paper", "authors", "debiased"])
@pytest.mark.parametrize("geometry", [Euclidean(), ParameterScaled(), DiagonalFisher()])
@pytest.mark.parametrize("base", BASES)
def test_sigma_zero_is_sam(variant, geometry, base):
    def friendly(b, m):
        return FriendlySAM(b, 0.1, sigma=0.0, variant=variant, geometry=geometry, model=m)

    def sam(b, m):
        return SharpnessAware(b, 0.1, direction=Gradient(), geometry=geometry, model=m)

    assert_same(run(friendly, base), run(sam, base))


def test_sam_is_not_the_base_optimizer():
    """So that the tests above are able to fail."""
    sam, plain = run(lambda b, m: SAM(b, 0.1, model=m), "SGD"), run(lambda b, m: b, "SGD")
    assert not torch.equal(sam[0], plain[0])


@pytest.mark.parametrize("method", FAMILY)
def test_the_loop_written_by_hand_is_the_closure(method):
    def by_hand():
        torch.manual_seed(3)
        model = network(batchnorm=True)
        optimizer = FAMILY[method](BASES["AdamW"](model.parameters()), model=model, when=Every(2))
        for seed in range(6):
            closure = closure_of(model, seed)
            closure()
            if optimizer.ascent_due:
                with optimizer.perturbed():
                    closure()
            optimizer.step()
            optimizer.zero_grad()
        return weights(model) + [buffer.clone() for buffer in model.buffers()]

    def by_closure():
        torch.manual_seed(3)
        model = network(batchnorm=True)
        optimizer = FAMILY[method](BASES["AdamW"](model.parameters()), model=model, when=Every(2))
        for seed in range(6):
            optimizer.step(closure_of(model, seed))
        return weights(model) + [buffer.clone() for buffer in model.buffers()]

    assert_same(by_hand(), by_closure())


def test_at_sigma_one_paper_and_authors_climb_the_same_way_but_for_the_start():
    """d = g - m_t is λ (g - m_{t-1}), so with the same m the directions are parallel."""
    model = network()
    paper, authors = (
        SharpnessAware(
            torch.optim.SGD(model.parameters(), lr=0.1),
            0.1,
            direction=BatchNoise(1.0, 0.9, variant),
            geometry=Euclidean(),
        )
        for variant in ("paper", "authors")
    )
    closure_of(model, 0)()
    m = {p: p.grad.clone() for p in model.parameters()}
    perturbed = []
    for optimizer in (paper, authors):
        optimizer.memory.replace({"ema": m}, dict.fromkeys(m, 1))
        model.zero_grad()
        closure_of(model, 1)()
        with optimizer.perturbed():
            perturbed.append(weights(model))
    for a, b in zip(*perturbed, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)
