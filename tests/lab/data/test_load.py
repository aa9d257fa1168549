import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from friendly_sam.lab.data import DATASETS, EncodedImages, Images, load


def in_memory(images: Images) -> Tensor:
    assert isinstance(images, Tensor)
    return images


def fingerprints(images: Images) -> set[bytes]:
    return {image.numpy().tobytes() for image in in_memory(images)}


def test_digits_are_1000_and_797_grey_images_of_8x8() -> None:
    data = load("digits")
    assert (len(data.train), len(data.test), data.validation) == (1000, 797, None)
    images = in_memory(data.train.images)
    assert images.shape == (1000, 1, 8, 8)
    assert images.dtype == torch.uint8
    assert data.train.labels.dtype == torch.int64
    assert images.max() == 255
    assert (data.channels, data.image_size, len(data.classes)) == (1, 8, 10)
    assert min(data.train.labels.bincount().tolist()) > 80


def test_the_normalisation_of_digits_is_theirs() -> None:
    data = load("digits")
    pixels = torch.cat([in_memory(data.train.images), in_memory(data.test.images)]).double() / 255
    assert data.mean[0] == pytest.approx(pixels.mean().item(), abs=2e-4)
    assert data.std[0] == pytest.approx(pixels.std().item(), abs=2e-4)


def test_the_digits_of_the_test_set_do_not_depend_on_the_seed() -> None:
    first, second = load("digits", seed=1), load("digits", seed=2)
    assert torch.equal(in_memory(first.test.images), in_memory(second.test.images))


def test_larger_subsets_contain_smaller_ones_and_leave_the_same_images_held_out() -> None:
    small = load("digits", train_size=100, validation_size=200, test_size=50, seed=3)
    large = load("digits", train_size=500, validation_size=200, test_size=90, seed=3)
    assert small.validation is not None
    assert large.validation is not None
    assert (len(small.train), len(small.validation), len(small.test)) == (100, 200, 50)
    assert fingerprints(small.train.images) <= fingerprints(large.train.images)
    assert fingerprints(small.test.images) <= fingerprints(large.test.images)
    assert torch.equal(in_memory(small.validation.images), in_memory(large.validation.images))


def test_validation_is_cut_from_training_alone() -> None:
    whole = load("digits")
    data = load("digits", validation_size=300)
    assert data.validation is not None
    assert (len(data.train), len(data.test)) == (700, 797)
    held_out, trained = fingerprints(data.validation.images), fingerprints(data.train.images)
    assert not held_out & trained
    assert held_out | trained == fingerprints(whole.train.images)


def test_subsets_depend_on_the_seed_alone() -> None:
    torch.manual_seed(0)
    first = load("digits", train_size=100, seed=1)
    state = torch.get_rng_state()
    second = load("digits", train_size=100, seed=1)
    other = load("digits", train_size=100, seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(in_memory(first.train.images), in_memory(second.train.images))
    assert not torch.equal(in_memory(first.train.images), in_memory(other.train.images))


def test_noise_touches_training_labels_only_and_keeps_the_clean_ones() -> None:
    clean = load("digits", validation_size=100)
    data = load("digits", validation_size=100, label_noise=0.4, noise_from="others")
    assert int((data.train.labels != data.train.clean_labels).sum()) == 360
    assert torch.equal(data.train.clean_labels, clean.train.labels)
    for split in (data.validation, data.test):
        assert split is not None
        assert torch.equal(split.labels, split.clean_labels)


def test_chosen_classes_are_relabelled_in_their_order() -> None:
    data = load("digits", classes=(7, 5))
    whole = load("digits")
    assert data.classes == ("7", "5")
    assert torch.equal(
        in_memory(data.train.images)[data.train.labels == 0],
        in_memory(whole.train.images)[whole.train.labels == 7],
    )
    assert len(data.test) == int(((whole.test.labels == 5) | (whole.test.labels == 7)).sum())
    noisy = load("digits", classes=(7, 5), label_noise=1.0, noise_from="others")
    assert torch.equal(noisy.train.labels, 1 - data.train.labels)


def test_digits_are_resized_on_request() -> None:
    data = load("digits", image_size=16, train_size=10, test_size=10)
    assert in_memory(data.train.images).shape == (10, 1, 16, 16)
    assert data.image_size == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_size": 0}, "train_size must be at least 1, got 0"),
        ({"test_size": -1}, "test_size must be at least 1, got -1"),
        ({"image_size": 0}, "image_size must be at least 1, got 0"),
        ({"validation_size": -1}, "validation_size must be at least 0, got -1"),
        ({"train_size": 1001}, "train_size must be at most 1000, .* got 1001"),
        ({"test_size": 798}, "test_size must be at most 797, .* got 798"),
        ({"validation_size": 1000}, "validation_size must be at most 999, .* got 1000"),
        (
            {"train_size": 901, "validation_size": 100},
            "train_size must be at most 900, .* got 901",
        ),
        ({"label_noise": 1.2}, r"label_noise must lie in \[0, 1\], got 1.2"),
        ({"classes": ()}, "classes must be distinct"),
        ({"classes": (1, 1)}, "classes must be distinct"),
        ({"classes": (1, 10)}, r"classes must lie in 0\.\.9, got 10"),
        ({"in_memory": False}, "in_memory"),
    ],
)
def test_bad_arguments_get_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        load("digits", **options)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_an_unknown_name_is_refused_with_the_names_and_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'cifar-10' \(did you mean cifar10\?\)") as error:
        load("cifar-10")
    assert all(name in str(error.value) for name in DATASETS)


def test_the_import_is_quick_since_heavy_packages_wait() -> None:
    code = (
        "import sys, friendly_sam.lab.data; "
        "sys.exit(any(m in sys.modules for m in ('datasets', 'sklearn', 'pandas', 'PIL.Image')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_cifar10_has_its_images_and_its_normalisation(shared: Path) -> None:
    data = load("cifar10", root=shared / "cifar10", train_size=2000, test_size=200)
    images = in_memory(data.train.images)
    assert images.shape == (2000, 3, 32, 32)
    assert data.classes[0] == "airplane"
    pixels = images.double() / 255
    np.testing.assert_allclose(pixels.mean(dim=(0, 2, 3)), data.mean, atol=0.015)
    np.testing.assert_allclose(pixels.std(dim=(0, 2, 3)), data.std, atol=0.015)


def test_images_are_shrunk_without_aliasing(shared: Path) -> None:
    options = {"root": shared / "cifar100", "train_size": 50, "test_size": 10}
    large = load("cifar100", **options)  # type: ignore[arg-type]
    small = load("cifar100", image_size=16, **options)  # type: ignore[arg-type]
    images = in_memory(small.train.images)
    assert images.shape == (50, 3, 16, 16)
    assert small.image_size == 16
    averaged = torch.nn.functional.avg_pool2d(in_memory(large.train.images).float(), 2)
    assert (averaged - images).abs().mean() < 8


@pytest.mark.parametrize(
    ("name", "folder", "counts", "classes"),
    [
        ("flowers", "flowers102", (3934, 817, 819), 102),
        ("pets", "oxford-pets", (1200, None, 600), 37),
        ("cars", "stanford-cars", (1400, None, 600), 196),
    ],
)
def test_large_images_stay_encoded(
    shared: Path, name: str, folder: str, counts: tuple[int, int | None, int], classes: int
) -> None:
    data = load(name, root=shared / folder)
    validation = None if data.validation is None else len(data.validation)
    assert (len(data.train), validation, len(data.test)) == counts
    assert len(data.classes) == classes
    assert data.image_size == 224
    assert isinstance(data.train.images, EncodedImages)
    assert data.train.images[0].mode == "RGB"


def test_large_images_are_shrunk_into_memory_on_request(shared: Path) -> None:
    data = load("flowers", root=shared / "flowers102", image_size=32, train_size=20, test_size=5)
    assert in_memory(data.train.images).shape == (20, 3, 32, 32)
