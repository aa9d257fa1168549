"""Eigenvalues and traces against dense matrices and known spectra."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from known_hessians import batches, dense_hessian, network, quadratic_objective, with_spectrum
from torch import nn

from friendly_sam.sharpness import Objective, hessian_trace, top_eigenpairs


def test_the_top_five_agree_with_the_dense_hessian(objective):
    dense = torch.linalg.eigvalsh(dense_hessian(objective.model, objective.data)).flip(0)
    found = top_eigenpairs(objective, 5, tolerance=1e-6)
    assert found.converged
    assert ((found.values - dense[:5]) / dense[:5]).abs().max() < 1e-6
    assert found.sharpness == pytest.approx(float(dense[0]), rel=1e-6)
    assert found.ratio == pytest.approx(float(dense[0] / dense[4]), rel=1e-6)


def test_vectors_are_eigenvectors_and_residuals_are_true(objective):
    found = top_eigenpairs(objective, 5, tolerance=1e-4)
    torch.testing.assert_close(found.vectors @ found.vectors.T, torch.eye(5).double())
    for value, vector, residual in zip(found.values, found.vectors, found.residuals):
        true = (objective.hessian_product(vector) - value * vector).norm()
        assert true <= 1e-4 * value.abs()
        assert float(residual) == pytest.approx(float(true), abs=1e-9)


# ARPACK's criterion of convergence has an absolute floor, eps^(2/3); below it all is zero.
eigenvalues = st.floats(-50, 50).map(lambda value: value if abs(value) > 1e-6 else 0.0)


@settings(max_examples=25, deadline=None)
@given(
    spectrum=st.lists(eigenvalues, min_size=6, max_size=40),
    basis=st.integers(8, 60),
    which=st.sampled_from(["largest", "smallest", "magnitude"]),
)
def test_any_spectrum_is_found(spectrum, basis, which):
    """With restarts (a small basis), at either end, with repeated values and zeros."""
    matrix = with_spectrum(spectrum)
    objective = quadratic_objective(matrix, torch.ones(len(spectrum), dtype=torch.float64))
    found = top_eigenpairs(objective, 1, tolerance=1e-8, which=which, basis=basis, max_products=900)
    key = {"largest": lambda v: v, "smallest": lambda v: -v, "magnitude": abs}[which]
    best = max(spectrum, key=key)
    scale = max(map(abs, spectrum)) or 1.0
    assert key(float(found.values[0])) == pytest.approx(key(best), abs=1e-6 * scale)


@pytest.mark.parametrize("basis", [80, 12])
def test_an_analytic_quadratic(basis):
    spectrum = torch.cat([torch.tensor([90.0, 40.0, 20.0, 10.0, 5.0]), torch.linspace(-1, 1, 200)])
    objective = quadratic_objective(with_spectrum(spectrum), torch.ones(205, dtype=torch.float64))
    found = top_eigenpairs(objective, 5, tolerance=1e-6, basis=basis)
    assert found.converged
    torch.testing.assert_close(found.values, spectrum[:5].double(), rtol=1e-9, atol=0)
    assert found.ratio == pytest.approx(18.0)


def test_restarts_lose_nothing():
    """A dense spectrum, of which a small basis can only see a part at a time."""
    spectrum = torch.linspace(0, 1, 150, dtype=torch.float64).square()
    objective = quadratic_objective(with_spectrum(spectrum), torch.ones(150, dtype=torch.float64))
    whole, restarted = (
        top_eigenpairs(objective, 3, tolerance=1e-6, basis=basis, max_products=600)
        for basis in (150, 14)
    )
    assert whole.products < restarted.products < 3 * whole.products
    assert restarted.converged
    torch.testing.assert_close(restarted.values, spectrum.flip(0)[:3], rtol=1e-9, atol=0)


def test_a_hessian_of_zeros():
    objective = quadratic_objective(torch.zeros(9, 9).double(), torch.ones(9).double())
    found = top_eigenpairs(objective, 3)
    assert found.values.tolist() == [0.0, 0.0, 0.0]
    assert found.vectors.isfinite().all()


def test_repeated_eigenvalues_are_all_found():
    objective = quadratic_objective(3 * torch.eye(12).double(), torch.ones(12).double())
    found = top_eigenpairs(objective, 5)
    assert found.converged
    torch.testing.assert_close(found.values, torch.full((5,), 3.0).double())


def test_too_few_products_are_reported():
    objective = quadratic_objective(
        with_spectrum(torch.linspace(0, 1, 60)), torch.ones(60, dtype=torch.float64)
    )
    found = top_eigenpairs(objective, 3, tolerance=1e-9, max_products=6)
    assert not found.converged
    assert found.products == 6
    assert found.residuals.max() > 1e-9


def test_progress_and_passes_are_counted(objective):
    heard = []
    passes = objective.passes
    found = top_eigenpairs(objective, 3, progress=lambda done, most: heard.append((done, most)))
    assert heard == [(i, 400) for i in range(1, found.products + 1)]
    assert objective.passes - passes == 3 * found.products  # three batches a product


def test_the_start_decides_nothing_and_the_seed_everything(objective):
    first, again, other = (top_eigenpairs(objective, 3, seed=s, tolerance=1e-6) for s in (1, 1, 2))
    assert torch.equal(first.values, again.values)
    torch.testing.assert_close(first.values, other.values, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes(dtype):
    exact = top_eigenpairs(Objective(network(), F.cross_entropy, batches()), 3).values
    objective = Objective(network(dtype), F.cross_entropy, batches(dtype=dtype), check=False)
    found = top_eigenpairs(objective, 3, max_products=60)
    assert found.vectors.dtype == torch.float32
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(found.values, exact, rtol=tolerance, atol=0)


def test_a_convolutional_network_with_batchnorm():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(3, 4),
    ).double()  # fmt: skip
    data = [(torch.randn(10, 1, 6, 6).double(), torch.randint(4, (10,))) for _ in range(2)]
    found = top_eigenpairs(Objective(model, F.cross_entropy, data), 5, tolerance=1e-7)
    dense = torch.linalg.eigvalsh(dense_hessian(model.eval(), data)).flip(0)
    torch.testing.assert_close(found.values, dense[:5], rtol=1e-6, atol=0)
    assert "running statistics" in found.normalisation


def test_the_trace_is_within_its_error(objective):
    exact = float(torch.trace(dense_hessian(objective.model, objective.data)))
    found = hessian_trace(objective, probes=300)
    assert abs(found.value - exact) < 4 * found.standard_error
    known = top_eigenpairs(objective, 5, tolerance=1e-6)
    better = hessian_trace(objective, probes=300, known=known)
    assert abs(better.value - exact) < 4 * better.standard_error
    assert better.standard_error < found.standard_error


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": 0}, "count must be an integer >= 1"),
        ({"count": 10**6}, "count must be at most"),
        ({"tolerance": -1.0}, "tolerance must be"),
        ({"which": "biggest"}, "which must be one of"),
        ({"max_products": 0}, "max_products"),
    ],
)
def test_mistakes_are_told(objective, settings, words):
    with pytest.raises(ValueError, match=words):
        top_eigenpairs(objective, **settings)
