"""Symmetric label noise at an exact rate."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from friendly_sam.lab.data.randomness import generator_for

NoiseFrom = Literal["all", "others"]


def symmetric_noise(
    labels: Tensor, *, rate: float, classes: int, noise_from: NoiseFrom = "all", seed: int = 0
) -> Tensor:
    """Replace exactly round(rate * N) labels, chosen without regard to their class.

    Args:
        labels: Clean labels, int64 [N]; left as they are.
        rate: Share of the labels that is replaced, from 0 to 1.
        classes: Number of classes.
        noise_from: "all" draws the new label from all classes, the old one among them, as the
            authors of F-SAM do, so that a share 1 / classes of the replaced labels stays right;
            "others" draws from the other classes, so that each replaced label is wrong.
        seed: The same seed replaces the same labels by the same ones.

    Returns:
        Noisy labels, int64 [N].
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"label_noise must lie in [0, 1], got {rate}")
    if noise_from not in ("all", "others"):
        raise ValueError(f"noise_from must be 'all' or 'others', got {noise_from!r}")
    if noise_from == "others" and classes < 2 and rate > 0:
        raise ValueError("noise_from='others' needs at least two classes, got 1")
    generator = generator_for("label noise", seed)
    count = round(rate * len(labels))
    chosen = torch.randperm(len(labels), generator=generator)[:count]
    noisy = labels.clone()
    if noise_from == "all":
        noisy[chosen] = torch.randint(classes, (count,), generator=generator)
    elif count:
        shift = torch.randint(1, classes, (count,), generator=generator)
        noisy[chosen] = (labels[chosen] + shift) % classes
    return noisy
