"""Figures 2(a), 2(b), 2(c) and A1: what in SAM's perturbation helps, and what harms.

The paper runs (a) and (b) on CIFAR-10 and CIFAR-100 from scratch and on Pets and Flowers by
fine-tuning. A full gradient a step is dear, so `small` and `mini` have the two tasks that are
trained from scratch; `mini` adds fine-tuning on 50 digits, the small set of its table 5.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from friendly_sam.lab.config.presets import preset
from friendly_sam.lab.config.schema import MethodConfig, RunConfig
from friendly_sam.lab.paper.claims import beats, falls
from friendly_sam.lab.paper.experiment import Cell, Experiment, Scale
from friendly_sam.lab.paper.experiments.scales import MAIN, TITLES, config
from friendly_sam.lab.paper.experiments.tables import DATA, cell, main_title, seeds
from friendly_sam.lab.paper.experiments.transfer import (
    RHO,
    SETS,
    fine_tuning,
    mini_set,
    pretraining,
)


def _variants(scale: Scale, methods: Sequence[str]) -> list[Cell]:
    """Return methods on the tasks of figure 2; `base` is SGD or AdamW, as the task has it."""
    cells = []
    for data in DATA:
        for method in methods:
            name = "sgd" if method == "base" else method
            runs = [config(scale, data, name, seed=seed) for seed in seeds(scale)]
            cells.append(
                cell(f"{TITLES[data][scale]}, {main_title(scale)}", runs, name=_name(method))
            )
    for title, tuned in _transfer(scale).items():
        for method in methods:
            runs = [dataclasses.replace(_with(tuned, method), seed=seed) for seed in seeds(scale)]
            cells.append(cell(title, runs, name=_name(method)))
    return cells


def _name(method: str) -> str:
    names = {"base": "SGD/AdamW", "sam": "SAM", "sam-full": "SAM-full"}
    return names.get(method) or {"sam-db": "SAM-db", "sam-noise": "SAM-noise"}[method]


def _transfer(scale: Scale) -> dict[str, RunConfig]:
    """Return the fine-tuning tasks, with SAM as the method."""
    if scale == "paper":
        return {SETS[name]: preset(f"{name}-deit_small-sam") for name in ("pets", "flowers")}
    if scale == "mini":
        return {"fine-tuning on 50 digits": fine_tuning("mini", mini_set(50), "sam", 0)}
    return {}


def _first(scale: Scale) -> list[RunConfig]:
    return [pretraining(scale)] if scale == "mini" else []


def _with(run: RunConfig, method: str) -> RunConfig:
    rho = None if method == "base" else run.method.rho or RHO["mini"]
    return dataclasses.replace(run, method=MethodConfig(name=method, rho=rho))


_FULL = (
    "The two tasks that are trained from scratch, at SAM's radius; a full gradient a step is dear."
)

figure2a = Experiment(
    name="figure2a",
    title="The full-gradient component (also figure 1)",
    claim="SAM beats the base optimizer in most cases; SAM-full, which perturbs along the full "
    "gradient, impairs the base optimizer instead.",
    cells=lambda scale: _variants(scale, ("base", "sam", "sam-full")),
    first=_first,
    mapping={
        "paper": "As published: appendix A5.",
        "small": _FULL,
        "mini": f"{_FULL} And fine-tuning on 50 digits.",
    },
    claims=(
        beats("SAM", "SGD/AdamW", text="SAM beats the base optimizer (the paper: mostly)"),
        beats("SAM", "SAM-full", text="SAM beats SAM-full"),
        beats("SGD/AdamW", "SAM-full", text="SAM-full hurts: the base optimizer beats it"),
    ),
)

figure2b = Experiment(
    name="figure2b",
    title="The noise component (also figure 1)",
    claim="SAM-db, which perturbs along another batch, does not improve on the base optimizer; "
    "SAM-noise, which perturbs along the batch's own noise, beats SAM.",
    cells=lambda scale: _variants(scale, ("base", "sam", "sam-db", "sam-noise")),
    first=_first,
    mapping={
        "paper": "As published: appendix A5.",
        "small": _FULL,
        "mini": f"{_FULL} And fine-tuning on 50 digits.",
    },
    claims=(
        beats("SAM-noise", "SAM", text="SAM-noise beats SAM"),
        beats("SAM", "SAM-db", text="SAM beats SAM-db: the batch's own noise is what helps"),
        beats(
            "SGD/AdamW",
            "SAM-db",
            text="SAM-db is not better than the base optimizer by a point or more",
            margin=1.0,
        ),
    ),
)

FACTORS: dict[Scale, tuple[int, ...]] = {
    "paper": tuple(range(1, 11)),
    "small": (1, 2, 4, 8),
    "mini": (1, 2, 3, 6),
}
"""How many batches the ascent takes; an epoch has 10 at `small` and 7 on 400 digits."""


def _enlarged(scale: Scale, network: str, title: str, rho: float | None = None) -> list[Cell]:
    return [
        cell(
            f"{TITLES['cifar100'][scale]}, {title}",
            [
                config(
                    scale, "cifar100", "sam", network=network, rho=rho, ascent_batches=k, seed=seed
                )
                for seed in seeds(scale)
            ],
            x=k,
        )
        for k in FACTORS[scale]
    ]


_FALLS = (falls("SAM", text="SAM gets worse as its perturbation batch grows"),)
_GROWN = "The accuracy of SAM decreases as the batch of its perturbation grows, k x 128 images."

figure2c = Experiment(
    name="figure2c",
    title="SAM with a perturbation batch k times as large",
    claim=f"{_GROWN} ResNet-18 on CIFAR-100.",
    cells=lambda scale: _enlarged(scale, MAIN[scale], main_title(scale)),
    mapping={
        "paper": "As published: k from 1 to 10, each batch inside its larger one.",
        "small": "As table 2, at SAM's radius, k = 1, 2, 4, 8 (an epoch has 16 batches of 64).",
        "mini": "As table 2, at SAM's radius, k = 1, 2, 3, 6 (an epoch has 7 batches of 64).",
    },
    claims=_FALLS,
    drawing="lines",
    x_label="perturbation batch, in batches",
)

_VGG = {"paper": "vgg16_bn", "small": "vgg8_bn", "mini": "cnn"}
_VGG_TITLE = {"paper": "VGG16-BN", "small": "VGG-8", "mini": "CNN"}
_VGG_RADIUS = {"mini": 0.05}
"""The convolutional network's own radius: at the MLP's it learns nothing."""

figure_a1 = Experiment(
    name="figureA1",
    title="The same with VGG16-BN",
    claim=f"{_GROWN} VGG16-BN on CIFAR-100.",
    cells=lambda scale: _enlarged(scale, _VGG[scale], _VGG_TITLE[scale], _VGG_RADIUS.get(scale)),
    mapping={
        "paper": "As published: k from 1 to 10.",
        "small": "As figure 2(c), with a small VGG (images of 16x16, its least).",
        "mini": "As figure 2(c), with the convolutional network at radius 0.05.",
    },
    claims=_FALLS,
    drawing="lines",
    x_label="perturbation batch, in batches",
)
