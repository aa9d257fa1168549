"""Studies of our own: the ascent on a fraction of the batch; long training."""

from __future__ import annotations

import dataclasses
from typing import Any

from friendly_sam.lab.config.settings import changed
from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.claims import beats
from friendly_sam.lab.paper.experiment import RANDOM_LABELS, Experiment, Scale
from friendly_sam.lab.paper.experiments.contenders import PROTOCOL, contender, panel_of
from friendly_sam.lab.paper.experiments.scales import LABEL_NOISE
from friendly_sam.lab.paper.experiments.tables import timed
from friendly_sam.lab.paper.tuning import Contender, Task, Tuning
from friendly_sam.lab.search.space import Range

FRACTIONS = {1.0: "", 0.25: ", 1/4", 0.125: ", 1/8"}


def _fractions(scale: Scale) -> list[Task]:
    contenders = [contender(scale, "cifar10", "sgd")]
    for method, name in (("sam", "SAM"), ("fsam", "F-SAM")):
        for fraction, suffix in FRACTIONS.items():
            part: dict[str, Any] = (
                {} if fraction == 1 else {"ascent_fraction": fraction, "factor": 2.0}
            )
            contenders.append(contender(scale, "cifar10", method, name=f"{name}{suffix}", **part))
    return [Task(panel=panel_of(scale, "cifar10"), contenders=tuple(contenders))]


_KEEPS = "keeps SAM's accuracy (at most 1 point less)"
_tuning = Tuning(tasks=_fractions, timed=timed)
ascent_fraction = Experiment(
    name="ascent-fraction",
    title="A study of our own: the ascent on a fraction of the batch",
    claim="Not in the paper: if the noise of the batch is what helps, the ascent gradient of an "
    "eighth of the batch should do, at a fraction of the price.",
    cells=_tuning.unchosen,
    mapping={
        "paper": f"ResNet-18 on CIFAR-10. {PROTOCOL}",
        "small": f"CIFAR-10 as in table 1. {PROTOCOL}",
        "mini": f"Digits as in table 1. {PROTOCOL}",
    },
    claims=(
        beats("F-SAM, 1/8", "SAM", margin=1.0, text=f"F-SAM on 1/8 of the batch {_KEEPS}"),
        beats("SAM, 1/8", "SAM", margin=1.0, text=f"SAM on 1/8 of the batch {_KEEPS}"),
        beats(
            "F-SAM, 1/8",
            "F-SAM",
            margin=1.0,
            text="F-SAM on 1/8 of the batch keeps F-SAM's accuracy (at most 1 point less)",
        ),
        beats("F-SAM, 1/8", "SGD", text="F-SAM on 1/8 of the batch beats SGD"),
    ),
    drawing="cost",
    tuning=_tuning,
)

EPOCHS = 60
IMAGES = (1000, 5000)
LONG = {
    "SGD": ("sgd", 1),
    "SGD, twice the epochs": ("sgd", 2),
    "SAM": ("sam", 1),
    "F-SAM": ("fsam", 1),
}
"""Contender to method and epochs, times the others': SAM's price, paid in epochs."""


LONG_RANGES = {"base.lr": Range(0.02, 0.4), "base.weight_decay": Range(2e-3, 6e-2)}
"""Wider than those of `medium`, which ended too early here: SGD's best of six trials had the
largest weight decay, and F-SAM's best of ten the smallest learning rate."""


def _long_tasks(scale: Scale) -> list[Task]:
    if scale != "medium":
        return []
    noise = f"{100 * LABEL_NOISE[scale]:g}{RANDOM_LABELS}"
    return [
        Task(
            panel=f"CIFAR-10, {counted(images, 'image')}, {EPOCHS} epochs with crops, {noise}",
            contenders=tuple(
                _for_long(contender(scale, "cifar10", method, name=name), images, times)
                for name, (method, times) in LONG.items()
            ),
        )
        for images in IMAGES
    ]


def _for_long(made: Contender, images: int, times: int) -> Contender:
    """Return a contender with crops and flips, for many epochs."""
    epochs = times * EPOCHS
    changes = {
        "data.train_size": images,
        "data.crop_padding": 4,
        "epochs": epochs,
        "schedule.warmup_epochs": epochs / 5,
        "engine.eval_epochs": epochs // 6,
    }
    return dataclasses.replace(
        made, run=changed(made.run, changes), space={**made.space, **LONG_RANGES}
    )


_long_tuning = Tuning(tasks=_long_tasks)
long_training = Experiment(
    name="long-training",
    title="A study of our own: long training",
    claim="Not in the paper: where training is long enough to memorise in spite of crops and "
    "flips, what do SAM and F-SAM gain over an SGD that is tuned alike, and over one that has "
    "their time?",
    cells=_long_tuning.unchosen,
    mapping={
        "medium": "CIFAR-10 at 32x32, 1,000 and 5,000 images with 40 % random labels, "
        f"{EPOCHS} epochs, crops and flips, batches of 128, all 10,000 test images, measured six "
        f"times. {PROTOCOL}",
    },
    claims=(
        beats("SAM", "SGD", text="SAM beats SGD"),
        beats("F-SAM", "SGD", text="F-SAM beats SGD"),
        beats("F-SAM", "SAM", text="F-SAM beats SAM"),
        beats("SAM", "SGD, twice the epochs", text="SAM beats SGD with twice the epochs"),
        beats("F-SAM", "SGD, twice the epochs", text="F-SAM beats SGD with twice the epochs"),
    ),
    drawing="cost",
    tuning=_long_tuning,
)
