"""Who is compared, and over which settings each is tuned, at every scale.

Experiments that compare the same method on the same task ask for the same contender, and so share
its runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from friendly_sam.lab.config.resolve import label
from friendly_sam.lab.config.settings import changed
from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.experiment import RANDOM_LABELS, Scale
from friendly_sam.lab.paper.experiments.scales import (
    HELD_OUT,
    LABEL_NOISE,
    MAIN,
    NETWORKS,
    TITLES,
    config,
)
from friendly_sam.lab.paper.tuning import Contender, Task
from friendly_sam.lab.search.space import Choice, Range

Bounds = tuple[float, float]
"""From, to."""
RADII = {
    "resnet18": (0.025, 0.4),
    "vgg16_bn": (0.025, 0.4),
    "resnet8s2": (0.025, 0.4),
    "vgg8_bn": (0.0125, 0.2),
    "mlp": (0.025, 0.4),
    "cnn": (0.0125, 0.2),
}
"""SAM's radii. The middle of the MLP's lies below the 0.2 that suits a learning rate of 0.05,
because smaller learning rates, which are in the search, ask for smaller radii."""
MEDIUM_RADII = (0.01, 0.4)
"""Those of `medium`, where short training on right labels chose the smallest of `RADII`."""
DECAYS = (0.6, 0.9, 0.95)
"""F-SAM's, which the paper tunes (section 6.1)."""

PROTOCOL = (
    "Every method, the base optimizer included, gets the same number of trials over learning rate, "
    "weight decay and, where it has them, radius (and F-SAM its decay λ), with two seeds, then "
    "some more around the best of them, which reach past the edge of a range where the best lies "
    "near it; the best on validation images runs on fresh seeds, and only those are tabled."
)


def contender(
    scale: Scale,
    data: str,
    method: str,
    *,
    name: str = "",
    network: str | None = None,
    factor: float = 1.0,
    batch_size: int | None = None,
    **options: Any,
) -> Contender:
    """Return a method that is tuned over learning rate, weight decay, and its own settings.

    Args:
        scale: how large.
        data: the paper's data set, `cifar10` or `cifar100`.
        method: `sgd` or a method of `fsam list methods`.
        name: what it is called (default: the method's label).
        network: what is trained (default: what stands for ResNet-18).
        factor: its radii, times those of the method.
        batch_size: images of a step; the learning rates follow its square root.
        options: what is set, for `scales.config`.
    """
    network = network or MAIN[scale]
    run = config(scale, data, method, network=network, batch_size=batch_size, **options)
    usual = config(scale, data, method, network=network).data.batch_size
    if scale == "paper":
        run = changed(run, HELD_OUT)
    share = math.sqrt((batch_size or usual) / usual)
    (low, high), weight_decays = _rates_and_decays(scale, network, run.data.label_noise)
    space: dict[str, Range | Choice] = {
        "base.lr": Range(low * share, high * share),
        "base.weight_decay": Range(*weight_decays),
    }
    if method != "sgd":
        space["method.rho"] = _radii(scale, network, method, factor)
    if method == "fsam" and run.method.decay is None:
        space["method.decay"] = Choice(DECAYS)
    return Contender(name=name or label(run), run=run, space=space)


def _rates_and_decays(scale: Scale, network: str, noise: float) -> tuple[Bounds, Bounds]:
    """Return the ranges of the learning rate and of the weight decay.

    SGD on the CNN is best at learning rate 0.002, or 0.01 with a weight decay of 0.1: 78 % on
    validation images, where the ranges of the MLP hold 70 % at most (two seeds). On the few images
    of `small`, 60 % of them with a wrong label, it is best at learning rates near 0.01 and weight
    decays of 0.02 to 0.08: 23 %, where the ranges of right labels hold 20 at most (two seeds).
    """
    if scale == "paper":
        return (0.01, 0.2), (1e-4, 1e-2)
    if scale == "medium":
        return (0.05, 0.4), (1e-3, 2e-2)
    if scale == "small":
        return ((4e-3, 0.2), (2e-3, 8e-2)) if noise else ((0.03, 0.3), (1e-3, 2e-2))
    return ((1e-3, 0.1), (1e-4, 0.1)) if network == "cnn" else ((0.005, 0.1), (1e-4, 1e-2))


def _radii(scale: Scale, network: str, method: str, factor: float) -> Range:
    """Return the range of a radius.

    ASAM's neighbourhood is measured in shares of the weights, so its radii are larger: 10 times
    SAM's on small convolutional networks (a ResNet-8 on 1,000 images has 41 to 43 % on validation
    images at radii 1.2 to 2.3, 36 and 27 at 5.3 and 7), 40 times elsewhere. WSAM at its default
    weighs the perturbed gradient nine times, so they are smaller.
    """
    if method in ("asam", "fasam"):
        factor *= 10.0 if network in ("cnn", "resnet8s2") else 40.0
    if method == "wsam":
        factor *= 0.25
    low, high = MEDIUM_RADII if scale == "medium" else RADII[network]
    return Range(factor * low, factor * high)


def task(
    scale: Scale, data: str, methods: Iterable[str], *, network: str | None = None, **options: Any
) -> Task:
    """Return methods on one data set and network."""
    return Task(
        panel=panel_of(scale, data, network),
        contenders=tuple(
            contender(scale, data, method, network=network, **options) for method in methods
        ),
    )


def panel_of(
    scale: Scale, data: str, network: str | None = None, noise: float | None = None
) -> str:
    """Name a data set, its images where they are a part of it, and a network.

    The network is what stands for ResNet-18 unless told otherwise. The share of random labels
    (default: the scale's own) may decide how many images there are.
    """
    wanted = network or MAIN[scale]
    images = config(scale, data, "sgd", network=wanted, noise=noise).data.train_size
    few = f", {counted(images, 'image')}" if images else ""
    title = next((t for t, name in NETWORKS[scale].items() if name == wanted), wanted)
    return f"{TITLES[data][scale]}{few}, {title}"


def noisy_panel_of(scale: Scale, data: str) -> str:
    """Name a data set with the share of random labels that is usual at the scale."""
    return f"{panel_of(scale, data)}, {100 * LABEL_NOISE[scale]:g}{RANDOM_LABELS}"
