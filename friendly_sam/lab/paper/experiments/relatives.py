"""Two studies of our own: all relatives of SAM, and all ways to pay less, each tuned alike."""

from __future__ import annotations

import dataclasses
from typing import Any

from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.schema import MethodConfig, ModelConfig, RunConfig
from friendly_sam.lab.paper.experiment import Cell, Experiment, Scale
from friendly_sam.lab.paper.experiments.scales import config
from friendly_sam.lab.paper.experiments.tables import panel_of
from friendly_sam.lab.paper.tuning import Contender, Tuning

MIDDLE: dict[Scale, float] = {"paper": 0.1, "small": 0.1, "mini": 0.1}
"""The middle of the range of SAM's radius: at `mini` below the 0.2 that suits a learning rate of
0.05, because smaller learning rates, which are in the search, ask for smaller radii."""

FACTORS = {"asam": 40.0, "fasam": 40.0, "wsam": 0.25}
"""The middle of the range of radii, times SAM's: ASAM's neighbourhood is measured in shares of the
weights, and WSAM at its default weighs the perturbed gradient nine times."""

RELATIVES = [name for name, method in METHODS.items() if not method.full_gradient]
"""Every method but SAM-full and SAM-noise, which see the whole training set in every step."""

CHEAPER: dict[str, tuple[str, float, dict[str, Any]]] = {
    "SAM": ("sam", 1, {}),
    "F-SAM": ("fsam", 1, {}),
    "F-SAM, 1/8": ("fsam", 2, {"ascent_fraction": 1 / 8}),
    "F-SAM, 1/16": ("fsam", 2, {"ascent_fraction": 1 / 16}),
    "F-SAM, every 2nd step": ("fsam", 2, {"every": 2}),
    "F-SAM, every 5th step": ("fsam", 2, {"every": 5}),
    "F-SAM, every 10th step": ("fsam", 4, {"every": 10}),
    "F-SAM, 1/8 on every 2nd step": ("fsam", 4, {"ascent_fraction": 1 / 8, "every": 2}),
    "F-SAM, last eighth of training": ("fsam", 1, {"start": 7 / 8}),
    "LookSAM": ("looksam", 1, {}),
    "LookSAM, every 10th step": ("looksam", 1, {"every": 10}),
    "MSAM": ("msam", 1, {}),
    "Stale-SAM": ("stale-sam", 1, {}),
    "Stale-F-SAM": ("stale-fsam", 1, {}),
}
"""Ways to pay less: the method, the middle of its radii times SAM's, and what is set."""

LONGER = {"SGD": 1.0, "SGD, 1.1 times the epochs": 1.1, "SGD, twice the epochs": 2.0}
"""The base optimizer with as much time as the others take."""


def contender(
    scale: Scale, name: str, method: str, factor: float = 1.0, **options: Any
) -> Contender:
    """Return a contender on the task of table 1."""
    run = dataclasses.replace(
        config(scale, "cifar10", "sgd"), method=MethodConfig(name=method, **options)
    )
    return Contender(name=name, run=run, radius=factor * MIDDLE[scale])


def _base(scale: Scale, name: str, epochs: float) -> Contender:
    return Contender(name=name, run=config(scale, "cifar10", "sgd", epochs=epochs))


def _relatives(scale: Scale) -> list[Contender]:
    others = [name for name in RELATIVES if name != "base"]
    return [
        _base(scale, "SGD", 1.0),
        *(contender(scale, METHODS[n].label, n, FACTORS.get(n, 1.0)) for n in others),
    ]


def _cheaper(scale: Scale) -> list[Contender]:
    return [
        *(_base(scale, name, epochs) for name, epochs in LONGER.items()),
        *(contender(scale, name, m, f, **options) for name, (m, f, options) in CHEAPER.items()),
    ]


def _experiment(name: str, title: str, claim: str, tuning: Tuning) -> Experiment:
    def cells(scale: Scale) -> list[Cell]:
        return tuning.untuned_cells(scale)

    protocol = (
        f"Every method, SGD included, gets {tuning.trials} trials over learning rate, weight decay "
        "and, where it has one, radius, with two seeds; the best on validation images runs on "
        "fresh seeds, and only those are tabled. Other settings are the defaults."
    )
    return Experiment(
        name=name,
        title=title,
        claim=claim,
        cells=cells,
        mapping={
            "paper": f"ResNet-18 on CIFAR-10. {protocol}",
            "small": f"CIFAR-10 as in table 1. {protocol}",
            "mini": f"Digits as in table 1, MLP. {protocol} The time of a step is measured with a "
            "ResNet-8 on batches of 128 images at 32x32, where it is nearly all passes.",
        },
        drawing="tuned",
        tuning=tuning,
    )


def _timed(scale: Scale, run: RunConfig) -> RunConfig:
    """Return what a step is timed on: the MLP's takes a millisecond, most of it Python's."""
    if scale != "mini":
        return run
    data = dataclasses.replace(run.data, image_size=32, batch_size=128)
    return dataclasses.replace(run, data=data, model=ModelConfig(name="resnet8"))


def _panel(scale: Scale) -> str:
    return panel_of(scale, "cifar10")


relatives = _experiment(
    "relatives",
    "A study of our own: the relatives of SAM, each tuned alike",
    "Not in the paper: which member of the family gives most, when each has its own settings?",
    Tuning(panel=_panel, contenders=_relatives, timed=_timed),
)
cheaper = _experiment(
    "cheaper",
    "A study of our own: ways to pay less, each tuned alike",
    "Not in the paper: a step of F-SAM costs two of SGD's. What do cheaper forms keep, and what "
    "does SGD reach when it is given the same time?",
    Tuning(panel=_panel, contenders=_cheaper, timed=_timed),
)
