"""Tables 1 to 4, 6 and the decay: training from scratch.

How each setting maps to a scale is told in `scales`, who is tuned over what in `contenders`; here
is what each experiment adds to that. At the scale `paper` the settings are the published ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from friendly_sam.lab.config.presets import preset
from friendly_sam.lab.config.resolve import label
from friendly_sam.lab.config.schema import ModelConfig, RunConfig
from friendly_sam.lab.config.settings import changed
from friendly_sam.lab.paper.claims import beats, beats_at_each, gain_grows
from friendly_sam.lab.paper.experiment import RANDOM_LABELS, SEEDS, Cell, Experiment, Scale
from friendly_sam.lab.paper.experiments.contenders import (
    DECAYS,
    PROTOCOL,
    contender,
    noisy_panel_of,
    panel_of,
    task,
)
from friendly_sam.lab.paper.experiments.scales import NETWORKS, TITLES, config
from friendly_sam.lab.paper.tuning import Report, Task, Tuning

DATA = ("cifar10", "cifar100")
PAPER = "As published: section 6.1."
FEW = ("sgd", "sam", "fsam")


def sets(scale: Scale) -> tuple[str, ...]:
    """List the data sets of an experiment that has both; CIFAR-10 alone at `small`, for time."""
    return DATA[:1] if scale == "small" else DATA


def seeds(scale: Scale) -> range:
    """List the seeds of a scale."""
    return range(SEEDS[scale])


def cell(panel: str, runs: Iterable[RunConfig], *, x: float | None = None, name: str = "") -> Cell:
    """Make a cell; its method is named after the runs' own unless told otherwise."""
    runs = tuple(runs)
    return Cell(panel=panel, method=name or label(runs[0]), x=x, runs=runs)


def timed(scale: Scale, run: RunConfig) -> RunConfig:
    """Return what a step is timed on: the MLP's takes a millisecond, most of it Python's."""
    if scale != "mini":
        return run
    batch = min(128, run.data.train_size or 128)
    larger = {"data.image_size": 32, "data.batch_size": batch, "model": ModelConfig(name="resnet8")}
    return changed(run, larger)


def tuning(tasks: Callable[[Scale], list[Task]], report: Report | None = None) -> Tuning:
    """Return the search of an experiment of the paper: none at its own scale."""
    return Tuning(
        tasks=lambda scale: [] if scale == "paper" else tasks(scale), report=report, timed=timed
    )


def published(own: Tuning, cells: Callable[[Scale], list[Cell]]) -> Callable[[Scale], list[Cell]]:
    """Return the published cells at the scale `paper`, what is tuned at the others."""
    return lambda scale: cells(scale) if scale == "paper" else own.unchosen(scale)


def _as_published(data: str, methods: Iterable[str], networks: Iterable[str]) -> list[Cell]:
    return [
        cell(
            panel_of("paper", data, network),
            [config("paper", data, method, network=network, seed=s) for s in seeds("paper")],
        )
        for title, network in NETWORKS["paper"].items()
        if title in networks
        for method in methods
    ]


_FEWER = "SGD, SAM and F-SAM, without the other two, for time"


def _table(number: int, data: str) -> Experiment:
    name = TITLES[data]["paper"]
    methods = ("sgd", "asam", "fishersam", "sam", "fsam")

    def tasks(scale: Scale) -> list[Task]:
        if number == 1 and scale == "medium":
            noisy = replace(task(scale, data, FEW), panel=noisy_panel_of(scale, data))
            return [_clean(scale), noisy]
        if number == 1 and scale == "mini":
            return [task(scale, data, methods), _clean(scale)]
        if number == 2 and scale == "small":
            return [task(scale, data, FEW)]
        networks = NETWORKS[scale].values()
        return [task(scale, data, methods, network=network) for network in networks]

    own = tuning(tasks)
    mapping: dict[Scale, str] = {
        "paper": PAPER,
        "medium": "Clean labels and, with fewer images and more epochs, 40 % random ones. "
        f"{PROTOCOL}",
        "small": f"One network, 1,000 images, right labels{'' if number == 1 else '; ' + _FEWER}. "
        f"{PROTOCOL}",
        "mini": "Digits with 60 % random labels, "
        f"the MLP{' and the CNN.' if number == 2 else '; and with right labels.'} {PROTOCOL}",
    }
    return Experiment(
        name=f"table{number}",
        title=f"{name}: SGD, ASAM, FisherSAM, SAM and F-SAM",
        claim=f"F-SAM beats SAM on {name} with every network, and its variants in most cases.",
        cells=published(own, lambda scale: _as_published(data, methods, NETWORKS["paper"])),
        mapping={s: text for s, text in mapping.items() if s in TITLES[data]},
        claims=(
            beats("F-SAM", "SAM", text="F-SAM beats SAM on every network"),
            beats("SAM", "SGD", text="SAM beats SGD on every network"),
            beats("F-SAM", "SGD", text="F-SAM beats SGD on every network"),
            beats("F-SAM", "ASAM", text="F-SAM beats ASAM (the paper: in most cases)"),
            beats("F-SAM", "FisherSAM", text="F-SAM beats FisherSAM (the paper: in most cases)"),
        ),
        tuning=own,
    )


def _clean(scale: Scale) -> Task:
    contenders = tuple(contender(scale, "cifar10", m, noise=0.0) for m in FEW)
    return Task(
        panel=f"{panel_of(scale, 'cifar10', noise=0.0)}, right labels", contenders=contenders
    )


table1 = _table(1, "cifar10")
table2 = _table(2, "cifar100")

_table3_tuning = tuning(
    lambda scale: [task(scale, d, ("sgd", "asam", "fasam")) for d in sets(scale)]
)
table3 = Experiment(
    name="table3",
    title="F-ASAM against ASAM",
    claim="With F-SAM's direction, ASAM improves consistently.",
    cells=published(
        _table3_tuning,
        lambda scale: [
            c for d in DATA for c in _as_published(d, ("asam", "fasam"), ("ResNet-18", "WRN-28-10"))
        ],
    ),
    mapping={
        "paper": f"{PAPER} F-ASAM is given ASAM's radius.",
        "small": f"As table 1, CIFAR-10 alone, for time. {PROTOCOL}",
        "mini": f"As table 1, the MLP only. {PROTOCOL}",
    },
    claims=(beats("F-ASAM", "ASAM", text="F-ASAM beats ASAM everywhere"),),
    tuning=_table3_tuning,
)

_IMAGENET = ("sgd", "asam", "sam", "fsam")
_STAND_IN: dict[Scale, str] = {"small": "cifar100", "mini": "cifar10"}


def _table4(scale: Scale) -> list[Task]:
    data = _STAND_IN[scale]
    rivals = [contender(scale, data, method) for method in _IMAGENET[:-1]]
    friendly = contender(scale, data, "fsam", decay=0.95)
    return [Task(panel=panel_of(scale, data), contenders=(*rivals, friendly))]


_table4_tuning = tuning(_table4)
table4 = Experiment(
    name="table4",
    title="ImageNet, ResNet-50",
    claim="F-SAM beats SAM and ASAM on a large task, by 0.21 over SAM.",
    cells=published(
        _table4_tuning,
        lambda scale: [
            cell(
                "ImageNet, ResNet-50",
                [preset(f"imagenet-resnet50-{m}", seed=seed) for seed in seeds(scale)],
            )
            for m in _IMAGENET
        ],
    ),
    mapping={
        "paper": "As published; ASAM at rho 0.075 like the others, as section 6.1 says.",
        "small": "ImageNet is out of reach: CIFAR-100 as in table 2, with the decay (0.95) of the "
        f"ImageNet recipe. {PROTOCOL}",
        "mini": "Digits stand in, with the decay (0.95) of the ImageNet recipe. This says nothing "
        f"about large tasks. {PROTOCOL}",
    },
    claims=(
        beats("F-SAM", "SAM", text="F-SAM beats SAM"),
        beats("F-SAM", "ASAM", text="F-SAM beats ASAM"),
    ),
    tuning=_table4_tuning,
)

NOISES: dict[Scale, tuple[float, ...]] = {
    "paper": (0.2, 0.6, 0.7, 0.8),
    "medium": (0.4, 0.6),
    "small": (0.2, 0.6),
    "mini": (0.2, 0.6, 0.7, 0.8),
}


def _table6(scale: Scale) -> list[Task]:
    return [
        Task(
            panel=panel_of(scale, "cifar10"),
            x=100 * noise,
            unit=RANDOM_LABELS,
            contenders=tuple(contender(scale, "cifar10", m, noise=noise) for m in FEW),
        )
        for noise in NOISES[scale]
    ]


_table6_tuning = tuning(_table6)
table6 = Experiment(
    name="table6",
    title="Label noise of 20, 60, 70 and 80 %",
    claim="F-SAM improves on SAM under label noise, more so when the noise is large.",
    cells=published(
        _table6_tuning,
        lambda scale: [
            cell(
                panel_of(scale, "cifar10"),
                [config(scale, "cifar10", m, noise=noise, seed=s) for s in seeds(scale)],
                x=100 * noise,
            )
            for m in FEW
            for noise in NOISES[scale]
        ],
    ),
    mapping={
        "paper": "As published: CIFAR-10, ResNet-18, radius 0.1, labels drawn from all classes.",
        "medium": f"As table 1 with wrong labels: its own 40 %, and 60 %. {PROTOCOL} At each rate "
        "anew.",
        "small": "As table 1, with 20 and 60 % random labels; with more a network that sees 1,000 "
        f"images learns next to nothing. {PROTOCOL} At each rate anew.",
        "mini": f"As table 1, with other noise. {PROTOCOL} At each rate anew.",
    },
    claims=(
        beats_at_each("SAM", "SGD", text="SAM is robust to label noise: it beats SGD at each rate"),
        beats_at_each("F-SAM", "SAM", text="F-SAM beats SAM at each rate"),
        gain_grows(
            "F-SAM",
            "SAM",
            text="The gain of F-SAM is larger at the highest rate than at the lowest",
        ),
    ),
    drawing="lines",
    x_label="random labels, %",
    x_unit=RANDOM_LABELS,
    tuning=_table6_tuning,
)


def _decay(scale: Scale) -> list[Task]:
    return [
        Task(
            panel=panel_of(scale, data),
            contenders=(
                contender(scale, data, "sgd"),
                contender(scale, data, "sam"),
                *(contender(scale, data, "fsam", decay=d, name=f"F-SAM, λ {d:g}") for d in DECAYS),
            ),
        )
        for data in sets(scale)
    ]


def _published_decay(scale: Scale) -> list[Cell]:
    cells = []
    for data in DATA:
        panel = panel_of(scale, data)
        cells.append(cell(panel, [config(scale, data, "sam", seed=s) for s in seeds(scale)]))
        for decay in DECAYS:
            runs = [config(scale, data, "fsam", decay=decay, seed=s) for s in seeds(scale)]
            cells.append(cell(panel, runs, name=f"F-SAM, λ {decay:g}"))
    return cells


_decay_tuning = tuning(_decay)
decay = Experiment(
    name="decay",
    title="F-SAM's decay λ: 0.6, 0.9 and 0.95",
    claim="All of λ = 0.6, 0.9, 0.95 outperform SAM.",
    cells=published(_decay_tuning, _published_decay),
    mapping={
        "paper": f"{PAPER} ResNet-18 on CIFAR-10 and CIFAR-100.",
        "small": f"As table 1, with λ given; CIFAR-10 alone, for time. {PROTOCOL}",
        "mini": f"As table 1, with λ given. {PROTOCOL}",
    },
    claims=tuple(
        beats(f"F-SAM, λ {d:g}", "SAM", text=f"F-SAM with λ = {d:g} beats SAM") for d in DECAYS
    ),
    tuning=_decay_tuning,
)
