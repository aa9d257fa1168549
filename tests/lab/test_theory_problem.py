"""The problem of the theorems: its constants are true, and the optimizer is the library's."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from friendly_sam.lab.paper.theory.problem import Problem, friendly_run

PROBLEM = Problem()
seeds = st.integers(0, 10_000)
spreads = st.floats(0.0, 20.0)


def weights(seed, spread):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(PROBLEM.dimension, dtype=torch.float64, generator=generator)
    return PROBLEM.rotation.T @ (PROBLEM.centres + spread * noise)


@settings(max_examples=100, deadline=None)
@given(seeds, spreads)
def test_the_gradient_is_that_of_the_loss(seed, spread):
    w, step = weights(seed, spread), weights(seed + 1, 1.0)
    step = 1e-5 * step / step.norm()
    slope = (PROBLEM.loss(w + step) - PROBLEM.loss(w - step)) / 2
    assert slope == pytest.approx(float(PROBLEM.gradient(w) @ step), abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(seeds, spreads, st.floats(1e-3, 10.0))
def test_beta_bounds_the_change_of_every_batch_gradient(seed, spread, distance):
    """The noise is the same at both places, so this is a statement on every batch loss."""
    w, step = weights(seed, spread), weights(seed + 1, 1.0)
    step = distance * step / step.norm()
    change = (PROBLEM.gradient(w + step) - PROBLEM.gradient(w)).norm()
    assert float(change) <= PROBLEM.beta * distance * (1 + 1e-12)


def test_beta_is_attained_at_the_minimum():
    w = PROBLEM.rotation.T @ PROBLEM.centres
    steepest = PROBLEM.rotation[int(PROBLEM.strengths.argmax())]
    change = PROBLEM.gradient(w + 1e-6 * steepest) - PROBLEM.gradient(w - 1e-6 * steepest)
    assert float(change.norm()) / 2e-6 == pytest.approx(PROBLEM.beta, rel=1e-6)
    assert PROBLEM.loss(w) == pytest.approx(0, abs=1e-25)


def test_the_loss_is_not_convex():
    far = PROBLEM.rotation.T @ (PROBLEM.centres + 2.0)
    step = 0.1 * PROBLEM.rotation[0]
    middle = PROBLEM.loss(far)
    assert (PROBLEM.loss(far + step) + PROBLEM.loss(far - step)) / 2 < middle


@settings(max_examples=100, deadline=None)
@given(seeds, spreads, seeds)
def test_g_bounds_every_batch_gradient(seed, spread, batch):
    gradient = PROBLEM.gradient(weights(seed, spread)) + PROBLEM.batch_noise(1, batch)[0]
    assert float(gradient.norm()) <= PROBLEM.bound


def test_m_is_the_variance_of_batch_gradients_and_they_are_unbiased():
    assert float(PROBLEM.zeta.sum(dim=0).norm()) < 1e-10
    noise = PROBLEM.batch_noise(20_000, seed=3)
    squares = noise.square().sum(dim=1)
    error = 4 * float(squares.std()) / 20_000**0.5
    assert float(squares.mean()) == pytest.approx(PROBLEM.variance, abs=error)


@pytest.mark.parametrize("variant", ["paper", "debiased"])
def test_a_run_is_algorithm_one(variant):
    """Against the algorithm written out: averages, perturbation, radius and step."""
    settings = {"steps": 30, "lr": 0.05, "seed": 2, "rho": 0.4, "decay": 0.8}
    run = list(friendly_run(PROBLEM, **settings, variant=variant, sigma=0.9, inverse_sqrt=True))
    w, m = PROBLEM.start(), torch.zeros(PROBLEM.dimension, dtype=torch.float64)
    for t, (step, noise) in enumerate(zip(run, PROBLEM.batch_noise(30, 2)), start=1):
        g = PROBLEM.gradient(w) + noise
        m = 0.8 * m + 0.2 * g
        seen = m / (1 - 0.8**t) if variant == "debiased" else m
        torch.testing.assert_close(step.gradient, g, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(step.full, PROBLEM.gradient(w), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(step.average, seen, rtol=1e-10, atol=1e-12)
        d = g if variant == "debiased" and t == 1 else g - 0.9 * seen
        eps = 0.4 / t**0.5 * d / d.norm()
        w = w - 0.05 * (PROBLEM.gradient(w + eps) + noise)


def test_weights_stay_when_the_learning_rate_is_zero():
    run = friendly_run(PROBLEM, steps=5, lr=0.0, seed=0, rho=0.1)
    assert all(torch.equal(a.full, b.full) for a, b in itertools.pairwise(run))
