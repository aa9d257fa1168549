"""From the paper's settings to runs at each scale; `COMMON` tells what was changed, and why.

The paper's setting is named by its data set, its network and its method; a scale says what
stands for each of them here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from friendly_sam.lab.config.presets import paper_method, preset
from friendly_sam.lab.config.schema import (
    BaseConfig,
    DataConfig,
    EngineConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
    ScheduleConfig,
)
from friendly_sam.lab.config.settings import changed
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.experiment import Scale

COMMON: dict[Scale, str] = {
    "paper": "The recipes of section 6 and appendix A5, for GPUs: nothing is changed.",
    "real": "Real photographs and a network that was really pretrained, on a CPU, seconds a run.",
    "medium": "CIFAR-10 at its own 32x32 on a CPU, 10 to 30 seconds a run: a ResNet-8 whose stem "
    "and blocks each halve the side (304 k parameters), batches of 128, a learning rate that rises "
    "over a fifth of training and falls as a cosine, momentum 0.9. With wrong labels: 5,000 "
    "images, 12 epochs and flips alone, so that it can memorise. With right labels: 10,000 images, "
    "6 epochs, crops and flips, so that it cannot. 4,000 validation images with right labels and "
    "all 10,000 test images, measured after every second epoch.",
    "small": "CIFAR at its own 32x32 on a CPU, seconds a run: the network and the schedule of "
    "`medium`, 1,000 images with right labels, flips alone, 16 epochs of batches of 64. That "
    "memorises: the training accuracy ends near 100 %. (With crops it does not, and SGD gains five "
    "points; `long-training` at `medium` has crops.) 4,000 validation images, since with 1,000 "
    "the search chose a setting for SGD that is a point below its best, and all 10,000 test "
    "images, measured after every fourth epoch. CIFAR-100 keeps its first 20 classes, so that each "
    "has about 50 images.",
    "mini": "scikit-learn's digits, embedded: 800 for training with 60 % random labels, 200 for "
    "validation with right ones, 797 for the test. An MLP stands for ResNet-18, a small "
    "convolutional network with BatchNorm for VGG16-BN. 400 of those images stand for CIFAR-100, "
    "the harder task. 30 epochs of batches of 64, cosine schedule, momentum 0.9.",
}
"""What stands for the paper's setting in every experiment, unless it says otherwise."""

NETWORKS: dict[Scale, dict[str, str]] = {
    "paper": {
        "VGG16-BN": "vgg16_bn",
        "ResNet-18": "resnet18",
        "WRN-28-10": "wrn28_10",
        "PyramidNet-110": "pyramidnet110",
    },
    "medium": {"ResNet-8": "resnet8s2"},
    "small": {"ResNet-8": "resnet8s2"},
    "mini": {"MLP": "mlp", "CNN": "cnn"},
}
"""The networks of tables 1 and 2."""

MAIN: dict[Scale, str] = {
    "paper": "resnet18",
    "medium": "resnet8s2",
    "small": "resnet8s2",
    "mini": "mlp",
}
"""What stands for ResNet-18, with which the paper does everything else."""

TITLES: dict[str, dict[Scale, str]] = {
    "cifar10": {
        "paper": "CIFAR-10",
        "medium": "CIFAR-10",
        "small": "CIFAR-10",
        "mini": "digits",
    },
    "cifar100": {
        "paper": "CIFAR-100",
        "small": "CIFAR-100, 20 classes",
        "mini": "digits",
    },
}

LABEL_NOISE: dict[Scale, float] = {"paper": 0.0, "medium": 0.4, "small": 0.0, "mini": 0.6}
"""Of every experiment but table 6, which has several, and table 1, which adds 0 at `medium` and
`mini`."""

HELD_OUT = {"data.validation_size": 5000}
"""What a search or a sweep at `paper` chooses on; the published runs train on every image."""

_EPOCHS = {"mlp": 30, "cnn": 30}
"""Of the networks of `mini`."""

QUICK = EngineConfig(
    device="cpu", threads=1, tensorboard=False, checkpoint_epochs=0, keep_best=False
)
"""Runs so short that a checkpoint before their end costs more than it saves."""
CIFAR = dataclasses.replace(QUICK, channels_last=True, eval_batch_size=500)
"""Held-out images are measured every few epochs: after each they would take as long as training at
`small`."""


def config(
    scale: Scale,
    data: str,
    method: str,
    *,
    network: str | None = None,
    seed: int = 0,
    noise: float | None = None,
    batch_size: int | None = None,
    epochs: float = 1.0,
    **settings: Any,
) -> RunConfig:
    """Return one run.

    Args:
        scale: how large.
        data: the paper's data set, `cifar10` or `cifar100`.
        method: `sgd` or a method of `fsam list methods`.
        network: what is trained (default: what stands for ResNet-18).
        seed: which repetition.
        noise: share of random labels (default: the scale's own).
        batch_size: images of a step (default: the scale's own).
        epochs: as many times the scale's own, warm-up included.
        settings: further settings of the method, such as `rho`.
    """
    noise = LABEL_NOISE[scale] if noise is None else noise
    run = _template(scale, data, network or MAIN[scale], method, noise)
    if epochs != 1:
        warmup = epochs * run.schedule.warmup_epochs
        run = changed(run, {"epochs": round(epochs * run.epochs), "schedule.warmup_epochs": warmup})
    images: dict[str, Any] = {"label_noise": noise}
    if batch_size is not None:
        images["batch_size"] = batch_size
    return dataclasses.replace(
        run,
        data=dataclasses.replace(run.data, **images),
        method=dataclasses.replace(run.method, **settings),
        seed=seed,
    )


def _template(scale: Scale, data: str, network: str, method: str, noise: float) -> RunConfig:
    """Return data, network and base optimizer."""
    if scale == "paper":
        return _published(data, network, method)
    if scale in ("medium", "small"):
        return _cifar(scale, data, network, method, noise)
    return RunConfig(
        data=_digits(data),
        model=ModelConfig(name=network),
        method=paper_method(method),
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=5e-4),
        engine=QUICK,
        epochs=_EPOCHS[network],
    )


def _published(data: str, network: str, method: str) -> RunConfig:
    """Return the paper's recipe; methods that it has none for take SAM's (appendix A5)."""
    try:
        return preset(f"{data}-{network}-{method}")
    except LabError:
        run = preset(f"{data}-{network}-sam")
        return dataclasses.replace(run, method=MethodConfig(name=method, rho=run.method.rho))


def _cifar(scale: Scale, data: str, network: str, method: str, noise: float) -> RunConfig:
    """Return a run on CIFAR at 32x32; at `medium` with wrong labels long, with right ones short."""
    small = scale == "small"
    if small:
        train, epochs = 1000, 16
    else:
        train, epochs = (5000, 12) if noise else (10_000, 6)
    return RunConfig(
        data=DataConfig(
            name=data,
            train_size=train,
            validation_size=4000,
            classes=tuple(range(20)) if data == "cifar100" else None,
            batch_size=64 if small else 128,
            flip=True,
            crop_padding=0 if small or noise else 4,
        ),
        model=ModelConfig(name=network),
        method=paper_method(method),
        schedule=ScheduleConfig(warmup_epochs=epochs / 5),
        engine=dataclasses.replace(CIFAR, eval_epochs=4 if small else 2),
        epochs=epochs,
    )


def _digits(data: str) -> DataConfig:
    return DataConfig(
        name="digits",
        train_size=800 if data == "cifar10" else 400,
        validation_size=200,
        batch_size=64,
    )
