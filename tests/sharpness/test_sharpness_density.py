"""The spectral density: it integrates to 1 and has the right moments and peaks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_hessians import dense_hessian, quadratic_objective, with_spectrum

from friendly_sam.sharpness import spectral_density


def test_it_integrates_to_one(objective):
    density = spectral_density(objective, steps=40, probes=3)
    assert density.integral == pytest.approx(1, abs=0.01)
    assert (density.y >= 0).all()
    torch.testing.assert_close(density.weights.sum(dim=1), torch.ones(3).double())


@settings(max_examples=20, deadline=None)
@given(
    spectrum=st.lists(st.floats(-20, 20), min_size=3, max_size=30),
    width=st.floats(1e-3, 3.0) | st.none(),
    points=st.integers(2, 200),
)
def test_it_integrates_to_one_whatever_the_spectrum_and_the_grid(spectrum, width, points):
    objective = quadratic_objective(with_spectrum(spectrum), torch.ones(len(spectrum)).double())
    density = spectral_density(objective, steps=12, probes=2, width=width, points=points)
    assert density.integral == pytest.approx(1, abs=0.01)


def test_one_eigenvalue_many_times_over_has_a_width():
    """The nodes differ by rounding only, which must not become the width."""
    objective = quadratic_objective(with_spectrum([1.0] * 3), torch.ones(3).double())
    density = spectral_density(objective, steps=3, probes=2)
    assert density.width == pytest.approx(0.01)
    assert density.integral == pytest.approx(1, abs=0.01)


def test_moments_are_those_of_the_eigenvalues(objective):
    """A quadrature of k steps is exact for polynomials up to degree 2k - 1; chance is left."""
    eigenvalues = torch.linalg.eigvalsh(dense_hessian(objective.model, objective.data))
    density = spectral_density(objective, steps=6, probes=80, width=0.02)
    mean = float(torch.trapezoid(density.x * density.y, density.x))
    square = float(torch.trapezoid(density.x**2 * density.y, density.x)) - 0.02**2
    assert mean == pytest.approx(float(eigenvalues.mean()), abs=0.15 * float(eigenvalues.std()))
    assert square == pytest.approx(float(eigenvalues.square().mean()), rel=0.2)
    exact = float(eigenvalues.sum())
    assert abs(density.trace.value - exact) < 4 * density.trace.standard_error


def test_two_clusters_give_two_peaks_of_the_right_mass():
    spectrum = torch.cat([torch.zeros(300), torch.full((100,), 5.0)])
    objective = quadratic_objective(with_spectrum(spectrum), torch.ones(400).double())
    density = spectral_density(objective, steps=4, probes=20, width=0.2)
    right = density.x > 2.5
    mass = float(torch.trapezoid(density.y[right], density.x[right]))
    assert mass == pytest.approx(0.25, abs=0.03)
    assert float(density.x[density.y.argmax()]) == pytest.approx(0, abs=0.05)


def test_products_are_counted(objective):
    heard = []
    density = spectral_density(
        objective, steps=7, probes=2, progress=lambda done, most: heard.append((done, most))
    )
    assert density.products == 14
    assert heard[-1] == (14, 14)


@pytest.mark.parametrize("settings", [{"steps": 0}, {"probes": 0}, {"points": 1}, {"width": 0.0}])
def test_mistakes_are_told(objective, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        spectral_density(objective, **settings)
