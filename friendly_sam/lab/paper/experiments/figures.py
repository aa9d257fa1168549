"""Figures 3, 4, A2 and A3: radius, batch size, training curves, Hessian spectrum."""

from __future__ import annotations

from friendly_sam.lab.paper.claims import beats, beats_at_each, gain_grows, less_sensitive
from friendly_sam.lab.paper.experiment import Cell, Experiment, Scale
from friendly_sam.lab.paper.experiments.scales import (
    RADII,
    RADIUS,
    config,
)
from friendly_sam.lab.paper.experiments.tables import DATA, cell, panel_of, seeds


def _figure3(scale: Scale) -> list[Cell]:
    cells = []
    for data in DATA:
        runs = [config(scale, data, "sgd", seed=seed) for seed in seeds(scale)]
        cells.append(cell(panel_of(scale, data), runs))
        for method in ("sam", "fsam"):
            for rho in RADII[scale][data]:
                runs = [config(scale, data, method, rho=rho, seed=seed) for seed in seeds(scale)]
                cells.append(cell(panel_of(scale, data), runs, x=rho))
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
            panel_of(scale, "cifar10"),
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
            f"{panel_of(scale, 'cifar100')}, ρ {rho:g}",
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
            panel_of(scale, "cifar10"),
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
