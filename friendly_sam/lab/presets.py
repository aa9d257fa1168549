"""Named settings: the paper's recipes, and small relatives of them for a CPU.

Names are `<data>-<network>-<method>`; every preset is an entry of a small table here, so
a number can be checked against the paper's text. Weight decay, radius and decay are those
of section 6.1 (CIFAR, ImageNet), section 6.2 and appendix A5 (transfer).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from friendly_sam.lab.config import (
    BaseConfig,
    DataConfig,
    EngineConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
    ScheduleConfig,
)
from friendly_sam.lab.errors import LabError, did_you_mean
from friendly_sam.lab.methods import METHODS

CIFAR_EPOCHS = {"vgg16_bn": 200, "resnet18": 200, "wrn28_10": 200, "pyramidnet110": 300}
"""Section 6.1: 200 epochs, and 300 for PyramidNet-110."""

CIFAR_RHO: dict[str, dict[str, float]] = {
    "cifar10": {"sam": 0.1, "fsam": 0.1, "asam": 2.0, "fasam": 2.0, "fishersam": 0.1},
    "cifar100": {"sam": 0.2, "fsam": 0.2, "asam": 4.0, "fasam": 4.0, "fishersam": 0.1},
}
"""Section 6.1; F-ASAM (table 3) is given ASAM's radius."""

CIFAR_DECAY = {"vgg16_bn": 0.6, "resnet18": 0.6, "wrn28_10": 0.9, "pyramidnet110": 0.9}
"""Section 6.1: lambda 0.9 works best for the two larger networks, 0.6 for the others."""

CIFAR_METHODS = ("sgd", "asam", "fishersam", "sam", "fsam", "fasam")
IMAGENET_METHODS = ("sgd", "asam", "sam", "fsam")
TRANSFER_METHODS = ("adamw", "sam", "fsam")

TRANSFER_SETS = ("cifar10", "cifar100", "cars", "pets", "flowers")
"""Table 5."""

SMALL = {"sgd": None, "sam": 0.2, "fsam": 0.2}
"""Radius of the small presets: the middle of what works at that size."""


def _method(name: str, *, rho: float | None = None, decay: float | None = None) -> MethodConfig:
    """Give a method of the tables; the paper's ASAM scales all parameters, eta 0."""
    if name in ("sgd", "adamw"):
        return MethodConfig(name="base")
    options: dict[str, Any] = {"name": name, "rho": rho}
    if "decay" in METHODS[name].defaults:  # type: ignore[index]
        options["decay"] = decay
    if name in ("asam", "fasam"):
        options["eta"] = 0.0
    return MethodConfig(**options)


def _cifar(data: str, network: str, method: str) -> RunConfig:
    return RunConfig(
        data=DataConfig(name=data, batch_size=128, flip=True, crop_padding=4, cutout=16),
        model=ModelConfig(name=network),
        method=_method(method, rho=CIFAR_RHO[data].get(method), decay=CIFAR_DECAY[network]),
        # Section 6.1: weight decay 0.0005 for SGD, 0.001 for SAM and its variants.
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=5e-4 if method == "sgd" else 1e-3),
        epochs=CIFAR_EPOCHS[network],
    )


def _imagenet(method: str) -> RunConfig:
    return RunConfig(
        data=DataConfig(name="imagenet", batch_size=128, flip=True, image_size=224, workers=8),
        model=ModelConfig(name="resnet50"),
        method=_method(method, rho=0.075, decay=0.95),
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=1e-4),
        engine=EngineConfig(channels_last=True),
        epochs=90,
    )


def _transfer(data: str, method: str) -> RunConfig:
    """Fine-tune DeiT-small; the paper does not give lambda here, 0.9 is this project's choice."""
    return RunConfig(
        data=DataConfig(name=data, batch_size=128, image_size=224, workers=8),
        model=ModelConfig(name="hf:facebook/deit-small-patch16-224"),
        method=_method(method, rho=0.075, decay=0.9),
        base=BaseConfig(name="adamw", lr=1e-4, weight_decay=1e-5),
        epochs=10,
    )


def _digits(network: str, method: str) -> RunConfig:
    """Digits with 60 % of the labels replaced: where the radius matters within seconds."""
    return RunConfig(
        data=DataConfig(name="digits", train_size=1000, label_noise=0.6, batch_size=64),
        model=ModelConfig(name=network),
        method=_method(method, rho=SMALL[method], decay=0.9),
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=5e-4),
        engine=EngineConfig(threads=1),  # steps so small that more threads only wait for each other
        epochs=30,
    )


def _cifar_small(data: str, method: str) -> RunConfig:
    """Give an over-parameterised network 2,000 small images with 40 % label noise."""
    return RunConfig(
        data=DataConfig(
            name=data, train_size=2000, image_size=16, label_noise=0.4, batch_size=128, flip=True
        ),
        model=ModelConfig(name="resnet8w32"),
        method=_method(method, rho=SMALL[method], decay=0.9),
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=5e-4),
        schedule=ScheduleConfig(name="cosine"),
        epochs=40,
    )


def _table() -> dict[str, tuple[str, RunConfig]]:
    table: dict[str, tuple[str, RunConfig]] = {}
    for network in ("mlp", "cnn"):
        for method in SMALL:
            table[f"digits-{network}-{method}"] = (
                f"CPU, seconds: {network.upper()}, 1,000 digits, 60 % label noise",
                _digits(network, method),
            )
    for data in ("cifar10", "cifar100"):
        for method in SMALL:
            table[f"{data}-small-{method}"] = (
                "CPU, minutes: 2,000 images at 16x16, 40 % label noise, ResNet-8 of width 32",
                _cifar_small(data, method),
            )
    for number, data in ((1, "cifar10"), (2, "cifar100")):
        for network in CIFAR_EPOCHS:
            for method in CIFAR_METHODS:
                where = f"the paper's table {number}"
                if method == "fasam":
                    in_table = network in ("resnet18", "wrn28_10")
                    where = "the paper's table 3" if in_table else "table 3's method, new network"
                table[f"{data}-{network}-{method}"] = (where, _cifar(data, network, method))
    for method in IMAGENET_METHODS:
        table[f"imagenet-resnet50-{method}"] = ("the paper's table 4", _imagenet(method))
    for data in TRANSFER_SETS:
        for method in TRANSFER_METHODS:
            table[f"{data}-deit_small-{method}"] = (
                "the paper's table 5: fine-tune DeiT-small",
                _transfer(data, method),
            )
    return table


_PRESETS = _table()

PRESETS: dict[str, str] = {name: description for name, (description, _) in _PRESETS.items()}
"""Every preset with its one-line description."""


def preset(name: str, **changes: Any) -> RunConfig:
    """Give a preset by name, with top-level fields replaced by `changes`."""
    if name not in _PRESETS:
        hint = did_you_mean(name, _PRESETS)
        raise LabError(f"unknown preset {name!r}{hint}: `fsam list presets` shows them all")
    return dataclasses.replace(_PRESETS[name][1], **changes)
