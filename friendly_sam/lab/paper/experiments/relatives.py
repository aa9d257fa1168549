"""Two studies of our own: all relatives of SAM, and all ways to pay less, each tuned alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.paper.experiment import Experiment, Scale
from friendly_sam.lab.paper.experiments.contenders import (
    PROTOCOL,
    contender,
    noisy_panel_of,
    panel_of,
)
from friendly_sam.lab.paper.experiments.tables import timed
from friendly_sam.lab.paper.tuning import Contender, Task, Tuning

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
ON_CIFAR = ("SGD", "SGD, twice the epochs", "SAM", "F-SAM", "F-SAM, 1/8", "Stale-SAM")
"""Those that are affordable on CIFAR, on a CPU."""


def _relatives(scale: Scale) -> list[Contender]:
    others = [name for name in RELATIVES if name != "base"]
    return [contender(scale, "cifar10", name) for name in ("sgd", *others)]


def _cheaper(scale: Scale) -> list[Contender]:
    found = [
        *(contender(scale, "cifar10", "sgd", name=n, epochs=e) for n, e in LONGER.items()),
        *(
            contender(scale, "cifar10", method, name=name, factor=factor, **options)
            for name, (method, factor, options) in CHEAPER.items()
        ),
    ]
    return [one for one in found if scale not in ("medium", "small") or one.name in ON_CIFAR]


def _experiment(
    name: str, title: str, claim: str, contenders: Callable[[Scale], list[Contender]]
) -> Experiment:
    def tasks(scale: Scale) -> list[Task]:
        panel = noisy_panel_of if scale == "medium" else panel_of
        return [Task(panel=panel(scale, "cifar10"), contenders=tuple(contenders(scale)))]

    tuning = Tuning(tasks=tasks, timed=timed)
    protocol = f"{PROTOCOL} Other settings are the defaults."
    mapping: dict[Scale, str] = {
        "paper": f"ResNet-18 on CIFAR-10. {protocol}",
        "medium": f"CIFAR-10 with 40 % random labels, as in table 1. {protocol}",
        "small": f"CIFAR-10 as in table 1. {protocol}",
        "mini": f"Digits as in table 1, MLP. {protocol} The time of a step is measured with a "
        "ResNet-8 on batches of 128 images at 32x32, where it is nearly all passes.",
    }
    return Experiment(
        name=name,
        title=title,
        claim=claim,
        cells=tuning.unchosen,
        mapping={s: text for s, text in mapping.items() if s != "medium" or name == "cheaper"},
        drawing="cost",
        tuning=tuning,
    )


relatives = _experiment(
    "relatives",
    "A study of our own: the relatives of SAM, each tuned alike",
    "Not in the paper: which member of the family gives most, when each has its own settings?",
    _relatives,
)
cheaper = _experiment(
    "cheaper",
    "A study of our own: ways to pay less, each tuned alike",
    "Not in the paper: a step of F-SAM costs two of SGD's. What do cheaper forms keep, and what "
    "does SGD reach when it is given the same time?",
    _cheaper,
)
