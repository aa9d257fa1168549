"""Figures 3, 4, A2 and A3: radius, batch size, training curves, Hessian spectrum.

Figures 3 and A2 are about what a radius does at one setting of everything else: that of the method
(or of SAM), as it was tuned in tables 1 and 2.
"""

from __future__ import annotations

from friendly_sam.lab.config.settings import changed, value
from friendly_sam.lab.paper.claims import beats, beats_at_each, gain_grows, less_sensitive
from friendly_sam.lab.paper.experiment import IMAGES_A_BATCH, Cell, Experiment, Scale
from friendly_sam.lab.paper.experiments.contenders import PROTOCOL, contender, panel_of, task
from friendly_sam.lab.paper.experiments.scales import HELD_OUT, config
from friendly_sam.lab.paper.experiments.tables import DATA, cell, published, seeds, sets, tuning
from friendly_sam.lab.paper.tuning import Chosen, Task, fresh_cell

RADII: dict[Scale, dict[str, tuple[float, ...]]] = {
    "paper": {"cifar10": (0.025, 0.05, 0.1, 0.2, 0.4), "cifar100": (0.05, 0.1, 0.2, 0.4, 0.8)},
    "small": dict.fromkeys(("cifar10", "cifar100"), (0.05, 0.1, 0.2, 0.4, 0.8)),
    "mini": dict.fromkeys(("cifar10", "cifar100"), (0.05, 0.1, 0.2, 0.4, 0.8)),
}
"""The sweep of figure 3; at paper scale around the radius of section 6.1, by factors of 2."""
METHODS = {"sgd": "SGD", "sam": "SAM", "fsam": "F-SAM"}


def _figure3(scale: Scale, chosen: Chosen) -> list[Cell]:
    """Return SGD, and SAM and F-SAM over the radius, each at its own learning rate and decay."""
    cells = []
    for data in sets(scale):
        panel = panel_of(scale, data)
        for name in METHODS.values():
            run = chosen.get((panel, name))
            if run is None:
                continue
            if name == "SGD":
                cells.append(fresh_cell(scale, panel, name, run))
                continue
            for rho in RADII[scale][data]:
                swept = changed(run, {"method.rho": rho})
                cells.append(fresh_cell(scale, panel, name, swept, rho))
    return cells


def _published_figure3(scale: Scale) -> list[Cell]:
    runs = {
        (panel_of(scale, data), name): changed(config(scale, data, method), HELD_OUT)
        for data in DATA
        for method, name in METHODS.items()
    }
    return _figure3(scale, runs)


_figure3_tuning = tuning(lambda scale: [task(scale, d, METHODS) for d in sets(scale)], _figure3)
figure3 = Experiment(
    name="figure3",
    title="Robustness to the radius",
    claim="F-SAM is much less sensitive to the radius than SAM; the gain is larger at larger radii "
    "(CIFAR-100 at twice the best radius: SAM drops from 80.88 to 78.83, F-SAM keeps 80.30).",
    cells=published(_figure3_tuning, _published_figure3),
    mapping={
        "paper": "ResNet-18; radii by factors of 2 around the best (the paper does not print "
        "them), chosen on 5,000 images held out of training; SGD for reference is ours.",
        "small": "SAM and F-SAM over the radius, each at the learning rate and weight decay that "
        "were tuned for it in table 1; SGD as tuned there. CIFAR-10 alone, for time.",
        "mini": "SAM and F-SAM over the radius, each at the learning rate and weight decay that "
        "were tuned for it in tables 1 and 2; SGD as tuned there.",
    },
    claims=(
        less_sensitive(
            "F-SAM", "SAM", text="F-SAM is less sensitive: it loses less at the largest radius"
        ),
        gain_grows("F-SAM", "SAM", text="The gain of F-SAM is larger at the largest radius"),
    ),
    drawing="lines",
    x_label="radius ρ",
    log_x=True,
    tuning=_figure3_tuning,
    one_setting=True,
)

BATCHES: dict[Scale, tuple[int, ...]] = {
    "paper": (128, 512, 2048),
    "small": (64, 256),
    "mini": (32, 128, 512),
}


def _figure4(scale: Scale) -> list[Task]:
    return [
        Task(
            panel=panel_of(scale, "cifar10"),
            x=size,
            unit=IMAGES_A_BATCH,
            contenders=tuple(contender(scale, "cifar10", m, batch_size=size) for m in METHODS),
        )
        for size in BATCHES[scale]
    ]


_figure4_tuning = tuning(_figure4)
figure4 = Experiment(
    name="figure4",
    title="Batch sizes",
    claim="The gain of F-SAM over SAM increases significantly with the batch size.",
    cells=published(
        _figure4_tuning,
        lambda scale: [
            cell(
                panel_of(scale, "cifar10"),
                [config(scale, "cifar10", m, batch_size=size, seed=s) for s in seeds(scale)],
                x=size,
            )
            for m in METHODS
            for size in BATCHES[scale]
        ],
    ),
    mapping={
        "paper": "The text names neither task nor network: CIFAR-10 and ResNet-18, as everywhere.",
        "small": f"As table 1, batches of 64 and 256 out of 1,000 images. {PROTOCOL} At each "
        "batch size anew; the range of learning rates follows its square root.",
        "mini": f"As table 1, batches of 32, 128 and 512 out of 800 images. {PROTOCOL} At each "
        "batch size anew; the range of learning rates follows its square root.",
    },
    claims=(
        gain_grows(
            "F-SAM", "SAM", text="The gain of F-SAM grows from the least batch to the largest"
        ),
        beats_at_each("F-SAM", "SAM", text="F-SAM beats SAM at each batch size"),
    ),
    drawing="lines",
    x_label="batch size",
    x_unit=IMAGES_A_BATCH,
    log_x=True,
    tuning=_figure4_tuning,
)


def _figure_a2(scale: Scale, chosen: Chosen) -> list[Cell]:
    """Return SAM and F-SAM at SAM's setting, with its radius and twice that."""
    panel = panel_of(scale, "cifar100")
    run = chosen.get((panel, "SAM"))
    if run is None:
        return []
    radius = float(value(run, "method.rho"))
    cells = []
    for rho in (radius, 2 * radius):
        for method in ("sam", "fsam"):
            at = changed(run, {"method": config(scale, "cifar100", method, rho=rho).method})
            cells.append(fresh_cell(scale, f"{panel}, ρ {rho:g}", METHODS[method], at))
    return cells


_ONE_SETTING = (
    "SAM and F-SAM at the learning rate, weight decay and radius that were tuned for SAM in table "
    "2, and at twice that radius: this is about one setting, F-SAM's own could be better."
)
_figure_a2_tuning = tuning(lambda scale: [task(scale, "cifar100", ("sam",))], _figure_a2)
figure_a2 = Experiment(
    name="figureA2",
    title="Training curves at ρ and 2ρ",
    claim="F-SAM converges faster than SAM, especially at first, and more so at twice the radius.",
    cells=published(
        _figure_a2_tuning,
        lambda scale: _figure_a2(
            scale, {(panel_of(scale, "cifar100"), "SAM"): config(scale, "cifar100", "sam")}
        ),
    ),
    mapping={
        "paper": "As published: CIFAR-100, ResNet-18, radius 0.2 and 0.4.",
        "small": _ONE_SETTING,
        "mini": _ONE_SETTING,
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
    tuning=_figure_a2_tuning,
    one_setting=True,
)


def _figure_a3(scale: Scale, chosen: Chosen) -> list[Cell]:
    return [fresh_cell(scale, panel, name, run) for (panel, name), run in chosen.items()]


_figure_a3_tuning = tuning(lambda scale: [task(scale, "cifar10", ("sam", "fsam"))], _figure_a3)
figure_a3 = Experiment(
    name="figureA3",
    title="Hessian spectrum",
    claim="F-SAM ends with a smaller largest eigenvalue and a smaller ratio λ1/λ5 than SAM.",
    cells=published(
        _figure_a3_tuning,
        lambda scale: [
            cell(
                panel_of(scale, "cifar10"),
                [config(scale, "cifar10", m, seed=s) for s in seeds(scale)],
            )
            for m in ("sam", "fsam")
        ],
    ),
    mapping={
        "paper": "As published: ResNet-18 on CIFAR-10.",
        "small": "The runs of table 1, each tuned; Hessian of the loss on training images.",
        "mini": "The runs of table 1, each tuned; Hessian of the loss on training images.",
    },
    claims=(
        beats("F-SAM", "SAM", metric="lambda1", lower=True, text="λ1 is smaller with F-SAM"),
        beats("F-SAM", "SAM", metric="ratio", lower=True, text="λ1/λ5 is smaller with F-SAM"),
    ),
    drawing="spectrum",
    metric="lambda1",
    tuning=_figure_a3_tuning,
)
