"""Fine-tuning a network that was pretrained on ImageNet, on few photographs: the scale `real`.

EfficientNet-Lite0 stands for the paper's DeiT-small. Its head is trained (a layer of 1280 features
with BatchNorm and ReLU6, and the linear one), what the 16 blocks make of each image is computed
once, and images have 96 pixels a side, so that a run takes two to four seconds of one core.
BatchNorm with frozen statistics or in training mode is tuned like the learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.resolve import label
from friendly_sam.lab.config.schema import (
    BaseConfig,
    DataConfig,
    EngineConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
)
from friendly_sam.lab.paper.claims import beats_at_each
from friendly_sam.lab.paper.experiment import RANDOM_LABELS, Experiment, Scale
from friendly_sam.lab.paper.experiments.contenders import DECAYS, PROTOCOL
from friendly_sam.lab.paper.tuning import Contender, Task, Tuning
from friendly_sam.lab.search.space import Choice, Range

SIZES = {"pets": 400, "flowers": 1020, "cars": 1000, "cifar10": 400, "cifar100": 1000}
"""Images that are trained on: 5 to 40 of each class."""
TITLES = {"pets": "OxfordIIITPet", "flowers": "Flowers102"}
NOISES = (0.0, 0.2, 0.4)

LEARNING_RATES = Range(2e-4, 5e-3)
WEIGHT_DECAYS = Range(1e-3, 1.0)
RADII = Range(0.005, 0.2)
"""Radii from 0.005 to 0.05 work with BatchNorm frozen, from 0.05 to 0.3 in training mode."""
BATCH_NORM = Choice(("frozen", "training"))

COMPARED: dict[str, dict[str, Any]] = {
    "adamw": {},
    "sam": {},
    "fsam": {},
    "fsam, 1/8": {"ascent_fraction": 1 / 8},
    "stale-fsam": {},
}
"""The base optimizer, the two of table 5, and two cheaper forms: the ascent on two of a batch's 16
images, and no ascent pass at all."""

ENGINE = EngineConfig(
    device="cpu",
    threads=1,
    channels_last=True,
    tensorboard=False,
    checkpoint_epochs=0,
    keep_best=False,
)

MAPPING = (
    "EfficientNet-Lite0 with ImageNet weights in the place of DeiT-small; its head is trained (a "
    "layer of 1280 features with BatchNorm and ReLU6, and the linear one: 0.46 M parameters with "
    "37 classes), its blocks stay as they are. 3 epochs of AdamW with a cosine schedule, batches "
    "of 16 images of 96x96 with flips. Training images: Pets and CIFAR-10 400, Cars and CIFAR-100 "
    "1,000, Flowers 1,020; 300 for validation with right labels, 600 for the test. BatchNorm with "
    "frozen statistics or in training mode is tuned too, for every method."
)


def photographs(name: str, noise: float = 0.0) -> DataConfig:
    """Return the images of a set."""
    return DataConfig(
        name=name,
        train_size=SIZES[name],
        validation_size=300,
        test_size=600,
        image_size=96,
        batch_size=16,
        flip=True,
        label_noise=noise,
    )


def photo_contender(data: DataConfig, method: str, *, name: str = "") -> Contender:
    """Return a method that is tuned over learning rate, weight decay, BatchNorm, and its own."""
    kind, _, fraction = method.partition(", ")
    run = RunConfig(
        data=data,
        model=ModelConfig(name="efficientnet_lite0", trained_blocks=0),
        method=MethodConfig(name="base" if kind == "adamw" else kind, **COMPARED.get(method, {})),
        base=BaseConfig(name="adamw"),
        engine=ENGINE,
        epochs=3,
    )
    space: dict[str, Range | Choice] = {
        "base.lr": LEARNING_RATES,
        "base.weight_decay": WEIGHT_DECAYS,
        "model.batch_norm": BATCH_NORM,
    }
    if kind != "adamw":
        space["method.rho"] = RADII
    if "decay" in METHODS[run.method.name].settings:
        space["method.decay"] = Choice(DECAYS)
    title = label(run) + (f", {fraction}" if fraction else "")
    return Contender(name=name or title, run=run, space=space)


def photo_task(
    name: str, title: str, methods: Iterable[str] = COMPARED, noise: float | None = None
) -> Task:
    """Return methods on one set, with a share of wrong labels where that is what is swept."""
    data = photographs(name, noise or 0.0)
    return Task(
        panel=title,
        contenders=tuple(photo_contender(data, method) for method in methods),
        x=None if noise is None else 100 * noise,
        unit=RANDOM_LABELS,
    )


def _noisy(scale: Scale) -> list[Task]:
    if scale != "real":
        return []
    return [
        photo_task(name, title, COMPARED, noise)
        for name, title in TITLES.items()
        for noise in NOISES
    ]


_tuning = Tuning(tasks=_noisy)

transfer_noise = Experiment(
    name="transfer-noise",
    title="A study of our own: wrong labels in fine-tuning",
    claim="Not in the paper: the practitioner's case, few photographs of which some have a wrong "
    "label.",
    cells=_tuning.unchosen,
    mapping={"real": f"{MAPPING} 0, 20 and 40 % of the training labels are random. {PROTOCOL}"},
    claims=(
        beats_at_each("F-SAM", "AdamW", text="F-SAM beats AdamW at every rate"),
        beats_at_each("F-SAM", "SAM", text="F-SAM beats SAM at every rate"),
        beats_at_each("SAM", "AdamW", text="SAM beats AdamW at every rate"),
    ),
    drawing="lines",
    x_label="random labels, %",
    x_unit=RANDOM_LABELS,
    tuning=_tuning,
)
