"""Figures 3, 4, A2 and A3, and the study of our own: the ascent on a part of the batch."""

from __future__ import annotations

from typing import Any

from friendly_sam.lab.experiments.claims import (
    beats,
    beats_at_each,
    gain_grows,
    less_sensitive,
)
from friendly_sam.lab.experiments.experiment import Cell, Experiment, Scale
from friendly_sam.lab.experiments.scales import (
    MAIN,
    NETWORKS,
    RADII,
    RADIUS,
    SWEEP,
    TITLES,
    config,
)
from friendly_sam.lab.experiments.tables import DATA, cell, main_title, seeds


def _panel(scale: Scale, data: str) -> str:
    return f"{TITLES[data][scale]}, {main_title(scale)}"


def _figure3(scale: Scale) -> list[Cell]:
    cells = []
    for data in DATA:
        runs = [config(scale, data, "sgd", seed=seed) for seed in seeds(scale)]
        cells.append(cell(_panel(scale, data), runs))
        for method in ("sam", "fsam"):
            for rho in RADII[scale][data]:
                runs = [config(scale, data, method, rho=rho, seed=seed) for seed in seeds(scale)]
                cells.append(cell(_panel(scale, data), runs, x=rho))
    return cells


figure3 = Experiment(
    name="figure3",
    title="Robustness to the radius",
    claim="F-SAM is much less sensitive to the radius than SAM; the gain is larger at larger radii "
    "(CIFAR-100 at twice the best radius: SAM drops from 80.88 to 78.83, F-SAM keeps 80.30).",
    cells=_figure3,
    mapping={
        "paper": "ResNet-18; radii by factors of 2 around the best (the paper does not print "
        "them); SGD for reference is ours.",
        "small": "As table 1: the runs of the SAM and F-SAM sweeps.",
        "mini": "As table 1: the runs of the SAM and F-SAM sweeps.",
    },
    claims=(
        less_sensitive(
            "F-SAM", "SAM", text="F-SAM is less sensitive: it loses less at the largest radius"
        ),
        gain_grows("F-SAM", "SAM", text="The gain of F-SAM is larger at the largest radius"),
        beats("F-SAM", "SAM", text="F-SAM beats SAM, each at its best radius (on validation)"),
    ),
    drawing="lines",
    x_label="radius ρ",
    log_x=True,
)

BATCHES: dict[Scale, tuple[int, ...]] = {
    "paper": (128, 512, 2048),
    "small": (32, 128, 512),
    "mini": (32, 128, 512),
}


def _figure4(scale: Scale) -> list[Cell]:
    return [
        cell(
            _panel(scale, "cifar10"),
            [config(scale, "cifar10", m, batch_size=size, seed=seed) for seed in seeds(scale)],
            x=size,
        )
        for m in ("sgd", "sam", "fsam")
        for size in BATCHES[scale]
    ]


figure4 = Experiment(
    name="figure4",
    title="Batch sizes",
    claim="The gain of F-SAM over SAM increases significantly with the batch size.",
    cells=_figure4,
    mapping={
        "paper": "The text names neither task nor network: CIFAR-10 and ResNet-18, as everywhere.",
        "small": "As table 1, at SAM's radius, batches of 32, 128 and 512 out of 1,000 images.",
        "mini": "As table 1, at SAM's radius, batches of 32, 128 and 512 out of 800 images.",
    },
    claims=(
        gain_grows(
            "F-SAM", "SAM", text="The gain of F-SAM grows from the least batch to the largest"
        ),
        beats_at_each("F-SAM", "SAM", text="F-SAM beats SAM at each batch size"),
    ),
    drawing="lines",
    x_label="batch size",
    log_x=True,
)


def _figure_a2(scale: Scale) -> list[Cell]:
    radius = RADIUS[scale]["cifar100"]
    return [
        cell(
            f"{_panel(scale, 'cifar100')}, ρ {rho:g}",
            [config(scale, "cifar100", m, rho=rho, seed=seed) for seed in seeds(scale)],
        )
        for rho in (radius, 2 * radius)
        for m in ("sam", "fsam")
    ]


figure_a2 = Experiment(
    name="figureA2",
    title="Training curves at ρ and 2ρ",
    claim="F-SAM converges faster than SAM, especially at first, and more so at twice the radius.",
    cells=_figure_a2,
    mapping={
        "paper": "As published: CIFAR-100, ResNet-18, radius 0.2 and 0.4.",
        "small": "Runs of figure 3, at SAM's radius and twice that.",
        "mini": "Runs of figure 3, at SAM's radius and twice that.",
    },
    claims=(
        beats(
            "F-SAM",
            "SAM",
            metric="early_train_loss",
            lower=True,
            text="F-SAM's training loss is lower over the first half of training",
        ),
    ),
    drawing="training",
    metric="train_loss",
)


def _figure_a3(scale: Scale) -> list[Cell]:
    return [
        cell(
            _panel(scale, "cifar10"),
            [config(scale, "cifar10", m, seed=seed) for seed in seeds(scale)],
        )
        for m in ("sam", "fsam")
    ]


figure_a3 = Experiment(
    name="figureA3",
    title="Hessian spectrum",
    claim="F-SAM ends with a smaller largest eigenvalue and a smaller ratio λ1/λ5 than SAM.",
    cells=_figure_a3,
    mapping={
        "paper": "As published: ResNet-18 on CIFAR-10.",
        "small": "The runs of table 1 at SAM's radius; Hessian of the loss on training images.",
        "mini": "The runs of table 1 at SAM's radius; Hessian of the loss on training images.",
    },
    claims=(
        beats("F-SAM", "SAM", metric="lambda1", lower=True, text="λ1 is smaller with F-SAM"),
        beats("F-SAM", "SAM", metric="ratio", lower=True, text="λ1/λ5 is smaller with F-SAM"),
    ),
    drawing="spectrum",
    metric="lambda1",
)

FRACTIONS = {1.0: "", 0.5: ", 1/2", 0.25: ", 1/4", 0.125: ", 1/8"}


def _fractions(scale: Scale) -> list[Cell]:
    panel = _panel(scale, "cifar10")
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
    title="A study of our own: the ascent on a part of the batch",
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

CHEAPER: dict[str, dict[str, Any]] = {
    "F-SAM, 1/8": {"ascent_fraction": 0.125},
    "F-SAM, 1/16": {"ascent_fraction": 0.0625},
    "F-SAM, every 2nd step": {"every": 2},
    "F-SAM, every 5th step": {"every": 5},
    "F-SAM, norm layers": {"layers": "norm"},
    "F-SAM, last layer": {"layers": "last"},
    "F-SAM, average in bf16": {"average": "bf16"},
}
"""Ways to pay less; the last saves memory."""


NORMED: dict[Scale, str] = {**MAIN, "mini": "cnn"}
"""A network with layers of normalisation."""


def _cheaper(scale: Scale) -> list[Cell]:
    network = NORMED[scale]
    title = next(title for title, name in NETWORKS[scale].items() if name == network)
    panel = f"{TITLES['cifar10'][scale]}, {title}"

    def row(name: str, method: str, *, x: float | None = None, **options: Any) -> Cell:
        runs = [
            config(scale, "cifar10", method, network=network, rho=x, seed=seed, **options)
            for seed in seeds(scale)
        ]
        return cell(panel, runs, x=x, name=name)

    radii = SWEEP.get(network, {}).get("fsam", RADII[scale]["cifar10"])
    radii = (0.2,) if scale == "small" else radii
    cells = [row("SGD", "sgd"), row("SGD, twice the epochs", "sgd", epochs=2)]
    cells += [row("SAM", "sam", x=rho) for rho in radii]
    cells += [row("F-SAM", "fsam", x=rho) for rho in radii]
    for name, options in CHEAPER.items():
        cells += [row(name, "fsam", x=rho, **options) for rho in radii]
    return cells


cheaper = Experiment(
    name="cheaper",
    title="A study of our own: ways to pay less",
    claim="Not in the paper: a step of F-SAM costs two of SGD's. What do cheaper forms keep, and "
    "what does SGD reach when it is given the same time?",
    cells=_cheaper,
    mapping={
        "paper": "ResNet-18 on CIFAR-10, the radii of figure 3.",
        "small": f"{MAIN['small']} on CIFAR-10 as in table 1, at F-SAM's choice in figure 3.",
        "mini": "Digits as in table 1, with the small CNN: the MLP has no layers of normalisation.",
    },
    claims=(
        beats("F-SAM", "SGD, twice the epochs", text="F-SAM beats SGD with twice the epochs"),
        *(
            beats(name, "F-SAM", margin=1.0, text=f"{name} keeps F-SAM's accuracy (-1 point)")
            for name in CHEAPER
        ),
    ),
    drawing="cost",
    x_label="radius ρ",
    choose=True,
)
