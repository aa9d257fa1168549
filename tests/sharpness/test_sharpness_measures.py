"""Rises of the loss within a radius, where they are known in closed form."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from known_hessians import batches, network, quadratic_objective, with_spectrum

from friendly_sam.sharpness import (
    Objective,
    loss_rises,
    m_sharpness,
    noise_direction,
    step_along,
    worst_rise,
)

finite = st.floats(-10, 10)


@settings(max_examples=50, deadline=None)
@given(st.lists(finite, min_size=1, max_size=6), st.floats(0, 5), st.integers(0, 99))
def test_a_step_has_the_radius_it_should_have(direction, rho, seed):
    """||T⁻¹ ε|| = ρ and <d, ε> = ρ ||T d||, for T = 1 and any other T > 0."""
    d = torch.tensor(direction, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    shape = torch.rand(len(d), dtype=torch.float64, generator=generator) + 0.1
    for t in (None, shape):
        eps = step_along(d, rho, t)
        scale = torch.ones_like(d) if t is None else t
        if d.norm() == 0:
            assert eps.norm() == 0
        elif d.norm() > 1e-100:
            assert float((eps / scale).norm()) == pytest.approx(rho, rel=1e-9, abs=1e-12)
            assert float(d @ eps) == pytest.approx(rho * float((scale * d).norm()), rel=1e-9)


def test_the_rise_along_the_full_gradient_of_a_quadratic():
    matrix, start = with_spectrum([4.0, 2.0, 1.0]), torch.tensor([1.0, -2.0, 0.5]).double()
    objective = quadratic_objective(matrix, start)
    eps = 0.3 * matrix @ start / (matrix @ start).norm()
    expected = start @ matrix @ eps + eps @ matrix @ eps / 2
    assert loss_rises(objective, 0.3)["full"].mean == pytest.approx(float(expected), rel=1e-10)


def test_the_worst_rise_of_a_quadratic_at_its_minimum():
    """At the minimum of ½ wᵀAw the worst rise is ½ ρ² λ_1; from near it, ascent finds that."""
    matrix = with_spectrum([9.0, 2.0, 1.0, 0.5])
    start = 1e-6 * torch.ones(4, dtype=torch.float64)
    rise = worst_rise(quadratic_objective(matrix, start), 0.5, steps=20)
    assert rise == pytest.approx(0.5 * 0.25 * 9.0, rel=1e-3)


def test_the_worst_rise_is_never_below_sams(objective):
    for adaptive in (False, True):
        sam = loss_rises(objective, 0.2, samples=1, adaptive=adaptive)["full"].mean
        assert worst_rise(objective, 0.2, steps=5, adaptive=adaptive) >= sam - 1e-12


def test_the_order_of_directions(objective):
    """Climbing the loss's own gradient rises most, a random direction hardly at all."""
    rises = loss_rises(objective, 0.2, samples=3)
    assert rises["full"].mean > rises["batch"].mean > rises["random"].mean
    assert rises["full"].mean > rises["friendly"].mean
    assert len(rises["batch"].values) == 3


def test_the_friendly_direction_is_the_gradient_less_the_reference(objective):
    batch, full = objective.data[0], objective.gradient()
    direction = noise_direction(objective, batch, reference=full, sigma=0.5)
    torch.testing.assert_close(direction, objective.batch_gradient(batch) - 0.5 * full)
    eps = step_along(direction, 0.2)
    expected = objective.loss(eps) - objective.loss()
    found = loss_rises(objective, 0.2, samples=1, sigma=0.5)["friendly"].mean
    assert found == pytest.approx(expected)


def test_the_adaptive_form_does_not_change_when_layers_are_rescaled():
    """ReLU layers scaled by c and 1/c are the same function; only T = |w| sees them as equal."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 9, bias=False), torch.nn.ReLU(), torch.nn.Linear(9, 4, bias=False)
    ).double()
    objective = Objective(model, F.cross_entropy, batches())
    before = {a: loss_rises(objective, 0.5, adaptive=a)["full"].mean for a in (False, True)}
    with torch.no_grad():
        model[0].weight.mul_(5.0)
        model[2].weight.div_(5.0)
    after = {a: loss_rises(objective, 0.5, adaptive=a)["full"].mean for a in (False, True)}
    assert after[True] == pytest.approx(before[True], rel=1e-9)
    assert abs(after[False] - before[False]) > 0.1 * before[False]


def test_m_sharpness_of_all_samples_is_sams_rise(objective):
    found = m_sharpness(objective, 0.1, [objective.samples])
    assert found[26].mean == pytest.approx(loss_rises(objective, 0.1)["full"].mean, rel=1e-9)


def test_m_sharpness_grows_as_m_shrinks(objective):
    found = m_sharpness(objective, 0.1, [1, 4, 13])
    assert found[1].mean > found[4].mean > found[13].mean
    assert [len(found[m].values) for m in (1, 4, 13)] == [20, 6, 2]
    assert found[1].standard_error > 0


def test_weights_are_left_alone(objective):
    before = objective.weights()
    loss_rises(objective, 0.3)
    worst_rise(objective, 0.3, adaptive=True)
    m_sharpness(objective, 0.3, [5])
    assert torch.equal(objective.weights(), before)


def test_mistakes_are_told(objective):
    with pytest.raises(ValueError, match="rho must be"):
        loss_rises(objective, -0.1)
    with pytest.raises(ValueError, match="at most the 26 samples"):
        m_sharpness(objective, 0.1, [27])
    with pytest.raises(ValueError, match="eta must be"):
        worst_rise(objective, 0.1, adaptive=True, eta=-1.0)
    unlabelled = [(x, None) for x, _ in batches()]
    odd = Objective(network(), None, unlabelled, batch_loss=lambda m, b: m(b[0]).square().mean())
    with pytest.raises(TypeError, match="tensors"):
        m_sharpness(odd, 0.1, [1])
