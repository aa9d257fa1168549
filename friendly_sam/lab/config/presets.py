"""Named settings: the paper's recipes, and small relatives of them for a CPU.

Names are `<data>-<network>-<method>`; every preset is an entry of a small table here, so
a number can be checked against the paper's text. Weight decay, radius and decay are those
of section 6.1 (CIFAR, ImageNet), section 6.2 and appendix A5 (transfer).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from friendly_sam.lab.config.components import PARAMETER_SCALED
from friendly_sam.lab.config.methods import BASES, METHODS
from friendly_sam.lab.config.schema import (
    BaseConfig,
    DataConfig,
    EngineConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
    ScheduleConfig,
)
from friendly_sam.lab.errors import LabError, did_you_mean

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
DIGITS_CNN_RHO = 0.05
"""With BatchNorm 0.2 is past the cliff. F-SAM, seeds 0 to 4: 0.05 gives 84.9 ± 3.1 %, 0.1 gives
86.7 ± 7.1, and 0.2 gives 23.3 ± 17.7, three of the five runs no better than a guess."""


Entry = tuple[str, str, Callable[[], RunConfig]]
"""Name, description, and what builds the config."""


def paper_method(
    name: str, *, rho: float | None = None, decay: float | None = None
) -> MethodConfig:
    """Return a method of the tables; a base optimizer's name stands for `base`.

    The paper's ASAM scales all parameters by |w| alone, eta 0. `decay` is used where it applies.
    """
    if name in BASES:
        return MethodConfig(name="base")
    method = METHODS[name]
    options: dict[str, Any] = {"name": name, "rho": rho}
    if "decay" in method.settings:
        options["decay"] = decay
    if PARAMETER_SCALED in method.components:
        options["eta"] = 0.0
    return MethodConfig(**options)


def _cifar(data: str, network: str, method: str) -> RunConfig:
    return RunConfig(
        data=DataConfig(name=data, batch_size=128, flip=True, crop_padding=4, cutout=16),
        model=ModelConfig(name=network),
        method=paper_method(method, rho=CIFAR_RHO[data].get(method), decay=CIFAR_DECAY[network]),
        # Section 6.1: weight decay 0.0005 for SGD, 0.001 for SAM and its variants.
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=5e-4 if method == "sgd" else 1e-3),
        epochs=CIFAR_EPOCHS[network],
    )


def _imagenet(method: str) -> RunConfig:
    return RunConfig(
        data=DataConfig(name="imagenet", batch_size=128, flip=True, image_size=224, workers=8),
        model=ModelConfig(name="resnet50"),
        method=paper_method(method, rho=0.075, decay=0.95),
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=1e-4),
        engine=EngineConfig(channels_last=True),
        epochs=90,
    )


def _transfer(data: str, method: str) -> RunConfig:
    """Fine-tune DeiT-small; the paper does not give lambda here, 0.9 is this project's choice."""
    return RunConfig(
        data=DataConfig(name=data, batch_size=128, image_size=224, workers=8),
        model=ModelConfig(name="hf:facebook/deit-small-patch16-224"),
        method=paper_method(method, rho=0.075, decay=0.9),
        base=BaseConfig(name="adamw", lr=1e-4, weight_decay=1e-5),
        epochs=10,
    )


def _digits(network: str, method: str) -> RunConfig:
    """Digits with 60 % of the labels replaced: where the radius matters within seconds."""
    rho = SMALL[method] and (DIGITS_CNN_RHO if network == "cnn" else SMALL[method])
    return RunConfig(
        data=DataConfig(name="digits", train_size=1000, label_noise=0.6, batch_size=64),
        model=ModelConfig(name=network),
        method=paper_method(method, rho=rho, decay=0.9),
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=5e-4),
        engine=EngineConfig(threads=1),  # steps so small that more threads only wait for each other
        epochs=30,
    )


def _cifar_small(data: str, method: str) -> RunConfig:
    """Train an over-parameterised network on 2,000 small images with 40 % label noise."""
    return RunConfig(
        data=DataConfig(
            name=data, train_size=2000, image_size=16, label_noise=0.4, batch_size=128, flip=True
        ),
        model=ModelConfig(name="resnet8w32"),
        method=paper_method(method, rho=SMALL[method], decay=0.9),
        base=BaseConfig(lr=0.05, momentum=0.9, weight_decay=5e-4),
        schedule=ScheduleConfig(name="cosine"),
        epochs=40,
    )


def _photos(method: str) -> RunConfig:
    """Fine-tune on a folder of photographs (`data.root`): minutes on a CPU."""
    return RunConfig(
        data=DataConfig(image_size=128, batch_size=32, flip=True),
        model=ModelConfig(name="efficientnet_lite0", trained_blocks=1, cache="runs/features"),
        method=paper_method(method),  # the radius is that of frozen BatchNorm
        base=BaseConfig(name="adamw", lr=1e-3, weight_decay=1e-2),
        engine=EngineConfig(channels_last=True, tensorboard=False),
        epochs=5,
    )


def _photos_presets() -> Iterator[Entry]:
    words = "CPU, minutes: your own photographs (--data.root), pretrained EfficientNet-Lite0"
    for method in TRANSFER_METHODS:
        yield f"photos-efficientnet_lite0-{method}", words, partial(_photos, method)


def _digits_presets() -> Iterator[Entry]:
    for network in ("mlp", "cnn"):
        for method in SMALL:
            words = f"CPU, seconds: {network.upper()}, 1,000 digits, 60 % label noise"
            yield f"digits-{network}-{method}", words, partial(_digits, network, method)


def _small_presets() -> Iterator[Entry]:
    words = "CPU, minutes: 2,000 images at 16x16, 40 % label noise, ResNet-8 of width 32"
    for data in ("cifar10", "cifar100"):
        for method in SMALL:
            yield f"{data}-small-{method}", words, partial(_cifar_small, data, method)


def _cifar_presets() -> Iterator[Entry]:
    for number, data in ((1, "cifar10"), (2, "cifar100")):
        for network in CIFAR_EPOCHS:
            for method in CIFAR_METHODS:
                where = f"GPU: the paper's table {number}"
                if method == "fasam":
                    in_table = network in ("resnet18", "wrn28_10")
                    paper = "the paper's table 3" if in_table else "table 3's method, new network"
                    where = f"GPU: {paper}"
                yield f"{data}-{network}-{method}", where, partial(_cifar, data, network, method)


def _imagenet_presets() -> Iterator[Entry]:
    for method in IMAGENET_METHODS:
        yield f"imagenet-resnet50-{method}", "GPU: the paper's table 4", partial(_imagenet, method)


def _transfer_presets() -> Iterator[Entry]:
    for data in TRANSFER_SETS:
        for method in TRANSFER_METHODS:
            words = "GPU: the paper's table 5, fine-tune DeiT-small"
            yield f"{data}-deit_small-{method}", words, partial(_transfer, data, method)


_BUILDERS: dict[str, tuple[str, Callable[[], RunConfig]]] = {
    name: (words, make)
    for name, words, make in chain(
        _digits_presets(),
        _photos_presets(),
        _small_presets(),
        _cifar_presets(),
        _imagenet_presets(),
        _transfer_presets(),
    )
}

PRESETS: dict[str, str] = {name: words for name, (words, _) in _BUILDERS.items()}
"""Every preset with its one-line description; its config is built when it is asked for."""


def needs_gpu(name: str) -> bool:
    """Whether a preset is one of the paper's own scale."""
    return PRESETS.get(name, "").startswith("GPU")


RECIPES = {"efficientnet_lite0": "photos-efficientnet_lite0-fsam"}
"""Pretrained networks, with the preset that `fsam train --model.name` starts from."""


def preset(name: str, **changes: Any) -> RunConfig:
    """Return a preset by name, with top-level fields replaced by `changes`."""
    if name not in _BUILDERS:
        hint = did_you_mean(name, _BUILDERS)
        raise LabError(f"unknown preset {name!r}{hint}: `fsam list presets` shows them all")
    return dataclasses.replace(_BUILDERS[name][1](), **changes)
