"""A study of our own: the ascent on a fraction of the batch."""

from __future__ import annotations

from friendly_sam.lab.paper.claims import beats
from friendly_sam.lab.paper.experiment import Cell, Experiment, Scale
from friendly_sam.lab.paper.experiments.scales import MAIN, RADII, config
from friendly_sam.lab.paper.experiments.tables import cell, panel_of, seeds

FRACTIONS = {1.0: "", 0.5: ", 1/2", 0.25: ", 1/4", 0.125: ", 1/8"}


def _fractions(scale: Scale) -> list[Cell]:
    panel = panel_of(scale, "cifar10")
    cells = [cell(panel, [config(scale, "cifar10", "sgd", seed=seed) for seed in seeds(scale)])]
    for method, name in (("sam", "SAM"), ("fsam", "F-SAM")):
        for fraction, suffix in FRACTIONS.items():
            for rho in RADII[scale]["cifar10"]:
                runs = [
                    config(scale, "cifar10", method, rho=rho, ascent_fraction=fraction, seed=seed)
                    for seed in seeds(scale)
                ]
                cells.append(cell(panel, runs, x=rho, name=f"{name}{suffix}"))
    return cells


ascent_fraction = Experiment(
    name="ascent-fraction",
    title="A study of our own: the ascent on a fraction of the batch",
    claim="Not in the paper: if the noise of the batch is what helps, the ascent gradient of an "
    "eighth of the batch should do, at a fraction of the price.",
    cells=_fractions,
    mapping={
        "paper": "ResNet-18 on CIFAR-10, the radii of figure 3.",
        "small": f"{MAIN['small']} on CIFAR-10 as in table 1, the radii of figure 3.",
        "mini": "Digits as in table 1, the radii of figure 3.",
    },
    claims=(
        beats(
            "F-SAM, 1/8",
            "SAM",
            margin=1.0,
            text="F-SAM on 1/8 of the batch keeps SAM's accuracy (at most 1 point less)",
        ),
        beats(
            "SAM, 1/8",
            "SAM",
            margin=1.0,
            text="SAM on 1/8 of the batch keeps SAM's accuracy (at most 1 point less)",
        ),
        beats(
            "F-SAM, 1/8",
            "F-SAM",
            margin=1.0,
            text="F-SAM on 1/8 of the batch keeps F-SAM's accuracy (at most 1 point less)",
        ),
        beats("F-SAM, 1/8", "SGD", text="F-SAM on 1/8 of the batch beats SGD"),
    ),
    drawing="cost",
    x_label="radius ρ",
    choose=True,
)
