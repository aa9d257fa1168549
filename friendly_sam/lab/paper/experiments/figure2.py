"""Figures 2(a), 2(b), 2(c) and A1: what in SAM's perturbation helps, and what harms.

The paper runs (a) and (b) on CIFAR-10 and CIFAR-100 from scratch and on Pets and Flowers by
fine-tuning. A full gradient a step is dear, so `mini` has the two tasks that are trained from
scratch and fine-tuning on 50 digits, the small set of its table 5; `small` has CIFAR-10 alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from friendly_sam.lab.config.presets import preset
from friendly_sam.lab.config.schema import MethodConfig, RunConfig
from friendly_sam.lab.config.settings import changed
from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.claims import beats, falls
from friendly_sam.lab.paper.experiment import Cell, Experiment, Scale
from friendly_sam.lab.paper.experiments.contenders import PROTOCOL, contender, panel_of, task
from friendly_sam.lab.paper.experiments.photographs import MAPPING, photo_contender, photographs
from friendly_sam.lab.paper.experiments.scales import MAIN, config
from friendly_sam.lab.paper.experiments.tables import DATA, cell, published, seeds, tuning
from friendly_sam.lab.paper.experiments.transfer import (
    SETS,
    mini_set,
    pretraining,
    transfer_contender,
)
from friendly_sam.lab.paper.tuning import Chosen, Task, Tuning, fresh_cell

FULL = ("base", "sam", "sam-full")
NOISE = ("base", "sam", "sam-db", "sam-noise")
PHOTOGRAPHS = 400
"""Images of a set at `real`: a full gradient over Flowers' 1,020 takes two minutes a run."""
LARGE_BATCH = 256
"""Images of a step at `small`, one of figure 4's: a full gradient is four times a step, not 16."""


def _name(method: str) -> str:
    names = {"base": "SGD/AdamW", "sam": "SAM", "sam-full": "SAM-full"}
    return names.get(method) or {"sam-db": "SAM-db", "sam-noise": "SAM-noise"}[method]


def _variants(methods: Sequence[str]) -> Tuning:
    """Return methods on the tasks of figure 2; `base` is SGD or AdamW, as the task has it."""

    def tasks(scale: Scale) -> list[Task]:
        if scale == "real":
            return [_fine_tuned(name, methods) for name in ("pets", "flowers")]
        if scale == "small":
            return [_from_scratch(scale, "cifar10", methods, batch_size=LARGE_BATCH)]
        found = [_from_scratch(scale, data, methods) for data in DATA]
        if scale == "mini":
            few = tuple(
                replace(transfer_contender(scale, mini_set(50), m.replace("base", "adamw")), name=n)
                for m, n in ((m, _name(m)) for m in methods)
            )
            found.append(Task(panel="fine-tuning on 50 digits", contenders=few))
        return found

    return tuning(tasks)


def _from_scratch(
    scale: Scale, data: str, methods: Sequence[str], batch_size: int | None = None
) -> Task:
    contenders = (
        contender(scale, data, m.replace("base", "sgd"), name=_name(m), batch_size=batch_size)
        for m in methods
    )
    batches = f", batches of {batch_size}" if batch_size else ""
    return Task(panel=panel_of(scale, data) + batches, contenders=tuple(contenders))


def _fine_tuned(name: str, methods: Sequence[str]) -> Task:
    """Return methods on few photographs of a set, since a full gradient a step is dear."""
    data = replace(photographs(name), train_size=PHOTOGRAPHS)
    contenders = (photo_contender(data, m.replace("base", "adamw"), name=_name(m)) for m in methods)
    panel = f"{SETS[name]}, {counted(PHOTOGRAPHS, 'image')}"
    return Task(panel=panel, contenders=tuple(contenders))


def _published(methods: Sequence[str]) -> list[Cell]:
    cells = []
    for data in DATA:
        for m in methods:
            runs = [config("paper", data, m.replace("base", "sgd"), seed=s) for s in seeds("paper")]
            cells.append(cell(panel_of("paper", data), runs, name=_name(m)))
    for name in ("pets", "flowers"):
        tuned = preset(f"{name}-deit_small-sam")
        for m in methods:
            runs = [replace(_with(tuned, m), seed=s) for s in seeds("paper")]
            cells.append(cell(SETS[name], runs, name=_name(m)))
    return cells


def _with(run: RunConfig, method: str) -> RunConfig:
    rho = None if method == "base" else run.method.rho
    return replace(run, method=MethodConfig(name=method, rho=rho))


def _first(scale: Scale) -> list[RunConfig]:
    return [pretraining(scale)] if scale == "mini" else []


_FULL = "The two tasks that are trained from scratch; a full gradient a step is dear. " + PROTOCOL
_MAPPING: dict[Scale, str] = {
    "paper": "As published: appendix A5.",
    "real": f"Pets and Flowers, {PHOTOGRAPHS} images each. {MAPPING} {PROTOCOL}",
    "small": f"CIFAR-10 in batches of {LARGE_BATCH}, four an epoch, as in figure 4, since a full "
    f"gradient a step is dear. {PROTOCOL}",
    "mini": f"{_FULL} Also fine-tuning on 50 digits.",
}
_full_tuning, _noise_tuning = _variants(FULL), _variants(NOISE)

figure2a = Experiment(
    name="figure2a",
    title="The full-gradient component (also figure 1)",
    claim="SAM beats the base optimizer in most cases; SAM-full, which perturbs along the full "
    "gradient, impairs the base optimizer instead.",
    cells=published(_full_tuning, lambda scale: _published(FULL)),
    tuning=_full_tuning,
    first=_first,
    mapping=_MAPPING,
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
    cells=published(_noise_tuning, lambda scale: _published(NOISE)),
    tuning=_noise_tuning,
    first=_first,
    mapping=_MAPPING,
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


_VGG: dict[Scale, str] = {"paper": "vgg16_bn", "small": "vgg8_bn", "mini": "cnn"}


def _enlarged(networks: dict[Scale, str]) -> Tuning:
    """Return SAM at the setting that was tuned for it, with ever larger ascent batches."""

    def tasks(scale: Scale) -> list[Task]:
        return [task(scale, "cifar100", ("sam",), network=networks[scale])]

    def report(scale: Scale, chosen: Chosen) -> list[Cell]:
        panel = panel_of(scale, "cifar100", networks[scale])
        return [
            fresh_cell(scale, panel, "SAM", changed(run, {"method.ascent_batches": k}), k)
            for (title, _), run in chosen.items()
            if title == panel
            for k in FACTORS[scale]
        ]

    return tuning(tasks, report)


def _published_enlarged(own: Tuning, network: str) -> list[Cell]:
    assert own.report is not None
    key = (panel_of("paper", "cifar100", network), "SAM")
    return own.report("paper", {key: config("paper", "cifar100", "sam", network=network)})


_FALLS = (falls("SAM", text="SAM gets worse as its perturbation batch grows"),)
_GROWN = "The accuracy of SAM decreases as the batch of its perturbation grows, k x 128 images."
_ONE = "at the setting that was tuned for SAM with k = 1: a larger batch could prefer another"
_grown, _grown_vgg = _enlarged(MAIN), _enlarged(_VGG)

figure2c = Experiment(
    name="figure2c",
    title="SAM with a perturbation batch k times as large",
    claim=f"{_GROWN} ResNet-18 on CIFAR-100.",
    cells=published(_grown, lambda scale: _published_enlarged(_grown, MAIN["paper"])),
    mapping={
        "paper": "As published: k from 1 to 10, each batch inside its larger one.",
        "small": f"As table 2, {_ONE}; k = 1, 2, 4, 8 (an epoch has 16 batches of 64).",
        "mini": f"As table 2, {_ONE}; k = 1, 2, 3, 6 (an epoch has 7 batches of 64).",
    },
    claims=_FALLS,
    drawing="lines",
    x_label="perturbation batch, in batches",
    tuning=_grown,
    one_setting=True,
)

figure_a1 = Experiment(
    name="figureA1",
    title="The same with VGG16-BN",
    claim=f"{_GROWN} VGG16-BN on CIFAR-100.",
    cells=published(_grown_vgg, lambda scale: _published_enlarged(_grown_vgg, _VGG["paper"])),
    mapping={
        "paper": "As published: k from 1 to 10.",
        "small": "As figure 2(c), with a small VGG.",
        "mini": "As figure 2(c), with the convolutional network.",
    },
    claims=_FALLS,
    drawing="lines",
    x_label="perturbation batch, in batches",
    tuning=_grown_vgg,
    one_setting=True,
)
