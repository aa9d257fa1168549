"""Table 5: fine-tuning with AdamW as the base.

The paper fine-tunes a DeiT-small that was trained on ImageNet. At `real` an EfficientNet-Lite0 with
ImageNet weights takes its place, see `photographs`. At `small` the network of that scale is trained
on 4,000 images of CIFAR-100's classes 20 to 99 first (other classes than those that it is
fine-tuned on later) and then fine-tuned on 500 images of each set. At `mini` an MLP learns the
digits 0 to 3 and is fine-tuned on the digits 4 to 9 (not 0 to 4 and 5 to 9: two heads of the same
size could not be distinguished), with 200, 100 and 50 images: the paper says that small sets are
where SAM fails.
"""

from __future__ import annotations

from dataclasses import replace

from friendly_sam.lab.config.presets import preset
from friendly_sam.lab.config.resolve import label
from friendly_sam.lab.config.schema import (
    BaseConfig,
    DataConfig,
    EngineConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
)
from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.claims import beats
from friendly_sam.lab.paper.experiment import Experiment, Scale
from friendly_sam.lab.paper.experiments.contenders import DECAYS, PROTOCOL
from friendly_sam.lab.paper.experiments.photographs import MAPPING, photo_task
from friendly_sam.lab.paper.experiments.scales import QUICK
from friendly_sam.lab.paper.experiments.tables import cell, published, seeds, tuning
from friendly_sam.lab.paper.run_folders import weights_from
from friendly_sam.lab.paper.tuning import SEARCH_SEEDS, Contender, Task
from friendly_sam.lab.search.space import Choice, Range

COMPARED = ("adamw", "sam", "fsam")
SETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cars": "Stanford Cars",
    "pets": "OxfordIIITPet",
    "flowers": "Flowers102",
}
LEARNING_RATES = Range(2e-4, 1e-2)
WEIGHT_DECAYS = Range(1e-5, 1e-1)
RADII = Range(0.01, 0.2)
"""The search: section 6.2 has learning rate 1e-4 for a transformer, networks this small and 10
epochs need more; its radius is 0.075."""

HELD_OUT = {"cifar10": 4000, "cifar100": 2000}
"""Validation images at `small` where a set has more than 500 to spare: with 250 of each the search
chose settings for SAM that were two points below F-SAM's on CIFAR-100."""
FIVE_SEEDS = tuple(range(1000, 1005))
"""Of a trial at `small`, where each seed has other 500 images and runs of one setting differ by a
point. With two, AdamW's choice on CIFAR-10 was 1.3 points below another of its trials on seven
fresh seeds."""
MEASURED_TWICE = replace(QUICK, eval_epochs=5, eval_batch_size=500)
"""Held-out images are many more than the training images."""

PRETRAINED_ENGINE = EngineConfig(
    device="cpu", threads=1, tensorboard=False, checkpoint_epochs=1, keep_best=False
)


def pretraining(scale: Scale) -> RunConfig:
    """Return the run whose weights all others start from, whatever their seed."""
    small = scale == "small"
    data = (
        DataConfig(
            name="cifar100",
            classes=tuple(range(20, 100)),
            train_size=4000,
            test_size=1000,
            flip=True,
            batch_size=128,
        )
        if small
        else DataConfig(name="digits", classes=(0, 1, 2, 3), batch_size=64)
    )
    return RunConfig(
        data=data,
        model=ModelConfig(name="resnet8s2" if small else "mlp"),
        method=MethodConfig(name="base"),
        base=BaseConfig(lr=0.05),
        engine=PRETRAINED_ENGINE,
        epochs=15 if small else 30,
    )


def transfer_contender(scale: Scale, data: DataConfig, method: str) -> Contender:
    """Return a method that starts from the pretrained weights: AdamW, 10 epochs (section 6.2)."""
    first = pretraining(scale)
    run = RunConfig(
        data=data,
        model=ModelConfig(name=first.model.name, weights=weights_from(first)),
        method=MethodConfig(name="base" if method == "adamw" else method),
        base=BaseConfig(name="adamw"),
        engine=MEASURED_TWICE if scale == "small" else QUICK,
        epochs=10,
    )
    space: dict[str, Range | Choice] = {
        "base.lr": LEARNING_RATES,
        "base.weight_decay": WEIGHT_DECAYS,
    }
    if method != "adamw":
        space["method.rho"] = RADII
    if method == "fsam":
        space["method.decay"] = Choice(DECAYS)
    return Contender(name=label(run), run=run, space=space)


def mini_set(size: int) -> DataConfig:
    """Return a number of digits from 4 to 9."""
    classes = (4, 5, 6, 7, 8, 9)
    return DataConfig(
        name="digits", classes=classes, batch_size=32, train_size=size, validation_size=200
    )


def _sets(scale: Scale) -> dict[str, DataConfig]:
    if scale == "mini":
        return {f"digits 4-9, {counted(size, 'image')}": mini_set(size) for size in (200, 100, 50)}
    return {
        title: DataConfig(
            name=name,
            classes=tuple(range(20)) if name == "cifar100" else None,
            train_size=500,
            validation_size=HELD_OUT.get(name, 500),
            image_size=32,
            batch_size=64,
        )
        for name, title in SETS.items()
    }


def _tasks(scale: Scale) -> list[Task]:
    if scale == "real":
        return [photo_task(name, title) for name, title in SETS.items()]
    return [
        Task(
            panel=title,
            contenders=tuple(transfer_contender(scale, data, m) for m in COMPARED),
            search_seeds=FIVE_SEEDS if scale == "small" else SEARCH_SEEDS,
        )
        for title, data in _sets(scale).items()
    ]


_tuning = tuning(_tasks)
table5 = Experiment(
    name="table5",
    title="Transfer: fine-tuning with AdamW",
    claim="F-SAM outperforms SAM and AdamW by 0.1 to 0.7 on all five sets.",
    cells=published(
        _tuning,
        lambda scale: [
            cell(title, [preset(f"{name}-deit_small-{m}", seed=seed) for seed in seeds(scale)])
            for name, title in SETS.items()
            for m in COMPARED
        ],
    ),
    first=lambda scale: [] if scale in ("paper", "real") else [pretraining(scale)],
    mapping={
        "paper": "As published; the paper does not print λ here, 0.9 is this project's choice.",
        "real": f"{MAPPING} {PROTOCOL}",
        "small": "No pretrained DeiT: a ResNet-8 learns 80 classes of CIFAR-100 at 32x32 (4,000 "
        "images, 15 epochs, SGD) and is fine-tuned on 500 images of each set at "
        "32x32 (20 other classes of CIFAR-100), 10 epochs of AdamW. 4,000 validation images of "
        "CIFAR-10, 2,000 of CIFAR-100, 500 of the others, and all test images, measured twice. "
        + PROTOCOL.replace("two seeds", "five seeds"),
        "mini": "An MLP learns the digits 0-3 and is fine-tuned on 200, 100 and 50 digits 4-9, "
        f"10 epochs of AdamW. {PROTOCOL}",
    },
    claims=(
        beats("F-SAM", "SAM", text="F-SAM beats SAM on every set"),
        beats("F-SAM", "AdamW", text="F-SAM beats AdamW on every set"),
        beats("SAM", "AdamW", text="SAM beats AdamW (the paper: except on Flowers102)"),
    ),
    tuning=_tuning,
)
