"""From the paper's settings to runs at each scale; `COMMON` tells what was changed, and why.

The paper's setting is named by its data set, its network and its method; a scale says what
stands for each of them here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.presets import paper_method, preset
from friendly_sam.lab.config.schema import (
    BaseConfig,
    DataConfig,
    EngineConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
)
from friendly_sam.lab.paper.experiment import Scale

COMMON: dict[Scale, str] = {
    "paper": "The recipes of section 6 and appendix A5, for GPUs: nothing is changed.",
    "small": "Real images on a CPU: 1,000 of them at 12x12 pixels with flips and nothing else, and "
    "a ResNet-8 of width 32, which can memorise them, in the place of every network. CIFAR-100 "
    "keeps its first 20 classes, so that each has about 50 images. 24 epochs of batches of 64, "
    "learning rate 0.05 with a cosine schedule, momentum 0.9, weight decay 0.0005 for all methods. "
    "40 % of the training labels are random: with so few steps, memorising what is wrong is where "
    "sharpness-aware training and SGD part at all. 2,000 test images; 500 validation images with "
    "right labels.",
    "mini": "scikit-learn's digits, embedded: 800 for training with 60 % random labels, 200 for "
    "validation with right ones, 797 for the test. An MLP stands for ResNet-18, a small "
    "convolutional network with BatchNorm for VGG16-BN. 400 of those images stand for CIFAR-100, "
    "the harder task. 30 epochs of batches of 64, learning rate 0.05 with a cosine schedule, "
    "momentum 0.9, weight decay 0.0005 for all methods.",
}
"""What stands for the paper's setting in every experiment, unless it says otherwise."""

TUNING = (
    "At this scale the radius is a sweep, and what is tabled is the radius that is best on the "
    "validation images (mean over seeds), for each method by itself. Experiments that the paper "
    "runs at one radius use SAM's choice in figure 3 with the scale's own number of seeds. "
    "F-SAM's decay is 0.9."
)

SEEDS: dict[Scale, int] = {"paper": 3, "small": 3, "mini": 5}
"""The paper repeats everything 3 times (section 6.1)."""

NETWORKS: dict[Scale, dict[str, str]] = {
    "paper": {
        "VGG16-BN": "vgg16_bn",
        "ResNet-18": "resnet18",
        "WRN-28-10": "wrn28_10",
        "PyramidNet-110": "pyramidnet110",
    },
    "small": {"ResNet-8": "resnet8w32"},
    "mini": {"MLP": "mlp", "CNN": "cnn"},
}
"""The networks of tables 1 and 2."""

MAIN: dict[Scale, str] = {"paper": "resnet18", "small": "resnet8w32", "mini": "mlp"}
"""What stands for ResNet-18, with which the paper does everything else."""

RADIUS: dict[Scale, dict[str, float]] = {
    "paper": {"cifar10": 0.1, "cifar100": 0.2},
    "small": {"cifar10": 0.1, "cifar100": 0.2},
    "mini": {"cifar10": 0.2, "cifar100": 0.2},
}
"""SAM's radius: section 6.1, and the choice of the sweep of figure 3 on validation images."""

RADII: dict[Scale, dict[str, tuple[float, ...]]] = {
    "paper": {"cifar10": (0.025, 0.05, 0.1, 0.2, 0.4), "cifar100": (0.05, 0.1, 0.2, 0.4, 0.8)},
    "small": dict.fromkeys(("cifar10", "cifar100"), (0.1, 0.2, 0.4)),
    "mini": dict.fromkeys(("cifar10", "cifar100"), (0.1, 0.2, 0.4, 0.8)),
}
"""The sweep of figure 3; at paper scale around the radius of section 6.1, by factors of 2."""

SWEEP: dict[str, dict[str, tuple[float, ...]]] = {
    "resnet8w32": {"asam": (1.0, 2.0, 4.0), "fishersam": (0.1, 0.2, 0.4)},
    "mlp": {"asam": (2.0, 4.0, 8.0, 16.0), "fishersam": (0.1, 0.2, 0.4)},
    "cnn": {
        "asam": (0.25, 0.5, 1.0),
        "fishersam": (0.025, 0.05, 0.1),
        "sam": (0.025, 0.05, 0.1),
        "fsam": (0.025, 0.05, 0.1),
    },
}
"""Candidates of the networks at `small` and `mini`, where they are not those of figure 3."""

TITLES = {
    "cifar10": {"paper": "CIFAR-10", "small": "CIFAR-10", "mini": "digits, 800 images"},
    "cifar100": {"paper": "CIFAR-100", "small": "CIFAR-100", "mini": "digits, 400 images"},
}

LABEL_NOISE: dict[Scale, float] = {"paper": 0.0, "small": 0.4, "mini": 0.6}
"""Of every experiment but table 6, which sweeps it."""

_EPOCHS = {"resnet8w32": 24, "vgg8_bn": 24, "mlp": 30, "cnn": 30}

QUICK = EngineConfig(
    device="cpu", threads=1, tensorboard=False, checkpoint_epochs=0, keep_best=False
)
"""Runs so short that a checkpoint before their end costs more than it saves."""


def candidates(scale: Scale, data: str, method: str, network: str) -> tuple[float | None, ...]:
    """List the radii that a method is tuned over; one where the paper gives it."""
    if method == "sgd":
        return (None,)
    if scale == "paper":
        return (preset(f"{data}-{network}-{method}").method.rho,)
    own = SWEEP[network]
    kind = "asam" if method == "fasam" else method
    return own.get(kind, RADII[scale][data])


def config(
    scale: Scale,
    data: str,
    method: str,
    *,
    network: str | None = None,
    seed: int = 0,
    rho: float | None = None,
    decay: float | None = None,
    noise: float | None = None,
    batch_size: int | None = None,
    ascent_batches: int = 1,
    ascent_fraction: float = 1.0,
    every: int = 1,
    layers: Literal["all", "norm", "last"] = "all",
    average: Literal["full", "bf16"] = "full",
    epochs: float = 1.0,
) -> RunConfig:
    """Return one run.

    Args:
        scale: how large.
        data: the paper's data set, `cifar10` or `cifar100`.
        method: `sgd` or a method of `fsam list methods`.
        network: what is trained (default: what stands for ResNet-18).
        seed: which repetition.
        rho: radius (default: the one of `RADIUS`).
        decay: F-SAM's decay (default: the paper's for the network, else 0.9).
        noise: share of random labels (default: the scale's own).
        batch_size: images of a step (default: the scale's own).
        ascent_batches: batches of the ascent (figure 2(c)).
        ascent_fraction: share of the batch that the ascent uses.
        every: perturb on every k-th step.
        layers: which layers are perturbed.
        average: precision of F-SAM's EMA.
        epochs: as many times the scale's own.
    """
    network = network or MAIN[scale]
    run = _template(scale, data, network, method)
    changes: dict[str, Any] = {}
    if method != "sgd":
        applying = METHODS[run.method.name].settings
        own = run.method.rho if scale == "paper" else None
        changes["rho"] = rho or own or RADIUS[scale][data]
        if "decay" in applying:
            changes["decay"] = decay or run.method.decay or 0.9
        changes |= {"ascent_batches": ascent_batches, "ascent_fraction": ascent_fraction}
        changes |= {"every": every, "layers": layers, "average": average}
    images: dict[str, Any] = {"label_noise": LABEL_NOISE[scale] if noise is None else noise}
    if batch_size is not None:
        images["batch_size"] = batch_size
    return dataclasses.replace(
        run,
        data=dataclasses.replace(run.data, **images),
        method=dataclasses.replace(run.method, **changes),
        epochs=round(epochs * run.epochs),
        seed=seed,
    )


def _template(scale: Scale, data: str, network: str, method: str) -> RunConfig:
    """Return data, network and base optimizer."""
    if scale == "paper":
        return _published(data, network, method)
    return RunConfig(
        data=_small_images(data, network) if scale == "small" else _digits(data),
        model=ModelConfig(name=network),
        method=paper_method(method),
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=5e-4),
        engine=dataclasses.replace(QUICK, channels_last=scale == "small"),
        epochs=_EPOCHS[network],
    )


def _published(data: str, network: str, method: str) -> RunConfig:
    """Return the paper's recipe; SAM-full, SAM-db and SAM-noise take SAM's (appendix A5)."""
    modified = method.startswith("sam-")
    run = preset(f"{data}-{network}-{'sam' if modified else method}")
    if not modified:
        return run
    return dataclasses.replace(run, method=MethodConfig(name=method, rho=run.method.rho))


def _small_images(data: str, network: str) -> DataConfig:
    return DataConfig(
        name=data,
        train_size=1000,
        validation_size=500,
        test_size=2000,
        image_size=16 if network == "vgg8_bn" else 12,  # the least it takes
        classes=tuple(range(20)) if data == "cifar100" else None,
        batch_size=64,
        flip=True,
    )


def _digits(data: str) -> DataConfig:
    return DataConfig(
        name="digits",
        train_size=800 if data == "cifar10" else 400,
        validation_size=200,
        batch_size=64,
    )
