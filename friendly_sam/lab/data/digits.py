"""scikit-learn's handwritten digits, which come with the package."""

from __future__ import annotations

import torch

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab.data.randomness import generator_for
from friendly_sam.lab.data.source import Source

TEST_IMAGES = 797
BRIGHTEST = 16


def load_digits() -> dict[str, Source]:
    """Read the 1,797 digits as 1,000 training and 797 test images of 8x8, uint8.

    The file is sorted by writer, hence a shuffle before the split. It does not depend on any seed,
    so that all runs are tested on the same images.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            f"the digits need scikit-learn: {how_to_install('lab')} ({error})"
        ) from error

    bunch = datasets.load_digits()
    order = torch.randperm(len(bunch.target), generator=generator_for("digits"))
    scaled = torch.from_numpy(bunch.images)[order] * (255 / BRIGHTEST)
    pixels = scaled.round().to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(bunch.target)[order].to(torch.int64)
    names = tuple(str(name) for name in bunch.target_names)
    return {
        "train": Source(
            rows=pixels[:-TEST_IMAGES], labels=labels[:-TEST_IMAGES], class_names=names
        ),
        "test": Source(rows=pixels[-TEST_IMAGES:], labels=labels[-TEST_IMAGES:], class_names=names),
    }
