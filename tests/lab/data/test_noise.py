import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from friendly_sam.lab.data.noise import symmetric_noise


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 300),
    classes=st.integers(2, 12),
    rate=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_noise_from_the_others_makes_exactly_the_asked_share_wrong(
    count: int, classes: int, rate: float, seed: int
) -> None:
    labels = torch.arange(count) % classes
    noisy = symmetric_noise(labels, rate=rate, classes=classes, noise_from="others", seed=seed)
    assert int((noisy != labels).sum()) == round(rate * count)
    assert torch.equal(labels, torch.arange(count) % classes)
    assert bool(((noisy >= 0) & (noisy < classes)).all())


def test_noise_from_all_leaves_one_in_every_number_of_classes_right() -> None:
    labels = torch.arange(50_000) % 10
    noisy = symmetric_noise(labels, rate=0.6, classes=10)
    assert (noisy != labels).double().mean().item() == pytest.approx(0.54, abs=0.005)


def test_noise_at_rate_one_from_all_is_uniform() -> None:
    noisy = symmetric_noise(torch.zeros(20_000, dtype=torch.int64), rate=1.0, classes=4)
    assert noisy.bincount(minlength=4).tolist() == pytest.approx([5000] * 4, rel=0.05)


def test_noise_from_the_others_is_uniform_over_them() -> None:
    labels = torch.full((20_000,), 2)
    noisy = symmetric_noise(labels, rate=1.0, classes=5, noise_from="others")
    assert noisy.bincount(minlength=5).tolist() == pytest.approx(
        [5000, 5000, 0, 5000, 5000], rel=0.05
    )


def test_noise_depends_on_the_seed_alone() -> None:
    labels = torch.arange(1000) % 10
    torch.manual_seed(0)
    first = symmetric_noise(labels, rate=0.5, classes=10, seed=1)
    torch.manual_seed(1)
    assert torch.equal(first, symmetric_noise(labels, rate=0.5, classes=10, seed=1))
    assert not torch.equal(first, symmetric_noise(labels, rate=0.5, classes=10, seed=2))


def test_no_noise_changes_nothing() -> None:
    labels = torch.arange(100) % 10
    assert torch.equal(symmetric_noise(labels, rate=0.0, classes=10), labels)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_0_to_1_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"label_noise must lie in \[0, 1\], got"):
        symmetric_noise(torch.zeros(3, dtype=torch.int64), rate=rate, classes=2)


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(ValueError, match="noise_from must be 'all' or 'others', got 'some'"):
        symmetric_noise(torch.zeros(3), rate=0.1, classes=2, noise_from="some")  # type: ignore[arg-type]


def test_one_class_has_no_others() -> None:
    with pytest.raises(ValueError, match="at least two classes"):
        symmetric_noise(torch.zeros(3), rate=0.5, classes=1, noise_from="others")
