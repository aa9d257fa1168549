"""A study of our own: the ascent on a fraction of the batch."""

from __future__ import annotations

from typing import Any

from friendly_sam.lab.paper.claims import beats
from friendly_sam.lab.paper.experiment import Experiment, Scale
from friendly_sam.lab.paper.experiments.contenders import PROTOCOL, contender, panel_of
from friendly_sam.lab.paper.experiments.tables import timed
from friendly_sam.lab.paper.tuning import Task, Tuning

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
