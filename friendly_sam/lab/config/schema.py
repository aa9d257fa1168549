"""A run as one value: frozen dataclasses, validated when they are made.

`None` in a field that depends on the method means "the method's own default"; those are
filled in by `friendly_sam.lab.config.resolve.resolve`, in one place, before anything runs, so
that the `config.yaml` of a run holds every value it used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from friendly_sam.lab.config.bounds import (
    LARGEST_IMAGE,
    LARGEST_SEED,
    MOST_THREADS,
    below_one,
    number,
    positive,
    share,
    text,
)
from friendly_sam.lab.config.methods import METHODS, unknown_method
from friendly_sam.lab.config.model import ModelConfig as ModelConfig
from friendly_sam.lab.config.model import check_cache


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, how many of them, and what is done to them."""

    name: str = "digits"
    """A data set of `fsam list`, or a Hugging Face hub name."""
    root: str | None = None
    """A local folder (parquet or images) to read instead of downloading."""
    train_size: int | None = None
    """Train on this many images, chosen by the seed (null: all)."""
    validation_size: int = 0
    """Hold this many training images out for validation."""
    test_size: int | None = None
    """Test on this many images (null: all)."""
    image_size: int | None = None
    """Resize images to this many pixels a side (null: the data set's own)."""
    classes: tuple[int, ...] | None = None
    """Keep these classes only (null: all); they become 0, 1, ... in this order."""
    label_noise: float = 0.0
    """Share of training labels that are replaced, from 0 to 1."""
    noise_from: Literal["all", "others"] = "all"
    """Draw replaced labels from all classes (the authors' way) or only from the others."""
    batch_size: int = 128
    """Images of one training step, over all processes and micro-batches together."""
    flip: bool = False
    """Mirror training images at random."""
    crop_padding: int = 0
    """Pad by this many pixels and crop back at random (0: off)."""
    smallest_crop: float = 0.08
    """Images not in memory: least share of the area that a random crop keeps (1: all of it)."""
    cutout: int = 0
    """Blank out a square of this many pixels a side (0: off)."""
    cutout_probability: float = 0.5
    """How often an image gets its cutout (0.5 in the authors' code)."""
    drop_last: bool = False
    """Leave out an epoch's last batch when it is smaller than the others."""
    workers: int = 0
    """Processes that decode images (large images only)."""
    in_memory: bool | None = None
    """Keep the images in memory, where they are seen whole; others are decoded when needed, and
    cropped at random in training (null: in memory when they are small or blocks are frozen)."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("data.name must name a data set, got an empty string")
        text("data.name", self.name)
        text("data.root", self.root)
        number("data.train_size", self.train_size, 1)
        number("data.validation_size", self.validation_size, 0)
        number("data.test_size", self.test_size, 1)
        number("data.image_size", self.image_size, 1, LARGEST_IMAGE)
        for label in self.classes or ():
            number("data.classes", label, 0)
        number("data.label_noise", self.label_noise, 0, 1)
        number("data.batch_size", self.batch_size, 1)
        number("data.crop_padding", self.crop_padding, 0, LARGEST_IMAGE)
        share("data.smallest_crop", self.smallest_crop)
        number("data.cutout", self.cutout, 0, LARGEST_IMAGE)
        number("data.cutout_probability", self.cutout_probability, 0, 1)
        number("data.workers", self.workers, 0, 256)


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """How the perturbation of each step is found (null: the method's default)."""

    name: str = "fsam"
    """A method of `fsam list`; `base` is the base optimizer alone."""
    rho: float | None = None
    """Radius of the perturbation."""
    sigma: float | Literal["projection"] | None = None
    """F-SAM: how much of the EMA of gradients is subtracted (or the projection on it)."""
    decay: float | None = None
    """F-SAM: decay (the paper's lambda) of the EMA of gradients."""
    variant: Literal["paper", "authors", "debiased"] | None = None
    """F-SAM: how the EMA starts, and which one is subtracted."""
    eta: float | None = None
    """ASAM: added to |w|; FisherSAM: weight of the squared gradient."""
    only: str | None = None
    """ASAM: scale only parameters whose name contains this (SamsungLabs: `weight`)."""
    average: Literal["full", "bf16"] = "full"
    """F-SAM: the precision that the EMA of gradients is kept in."""
    layers: Literal["all", "norm", "last"] = "all"
    """Which layers are perturbed: all, those of normalisation (SAM-ON), or the last one."""
    theta: float | None = None
    """VaSSO: weight of the new gradient in the EMA."""
    alpha: float | None = None
    """GSAM: weight of the surrogate gap; LookSAM: weight of the component that is reused."""
    gamma: float | None = None
    """WSAM: weight of the sharpness (0.5 is SAM)."""
    every: int | None = None
    """Perturb on every k-th step only (null: LookSAM 5, the others 1)."""
    start: float | None = None
    """Perturb from this step on; below 1 it is a share of training (0.75: the last quarter)."""
    probability: float | None = None
    """Perturb on each step with this probability."""
    ascent_batches: int = 1
    """Compute the ascent gradient on a batch k times as large, around the step's own."""
    ascent_fraction: float = 1.0
    """Compute the ascent gradient on this share of the step's batch (1/8: an eighth of a pass)."""
    sync_ascent: bool = True
    """Several processes: one common perturbation (true) or each its own (m-sharpness)."""
    replay_rng: bool = False
    """Give both passes of a step the same dropout masks."""

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise ValueError(f"method.name: {unknown_method(self.name)}")
        number("method.rho", self.rho, 0)
        if not isinstance(self.sigma, str):
            number("method.sigma", self.sigma, 0)
        below_one("method.decay", self.decay)
        number("method.eta", self.eta, 0)
        share("method.theta", self.theta)
        number("method.alpha", self.alpha, 0)
        below_one("method.gamma", self.gamma)
        number("method.every", self.every, 1)
        number("method.start", self.start, 0)
        if self.start is not None and self.start > 1 and self.start != int(self.start):
            raise ValueError(f"method.start must be below 1 or a whole step, got {self.start}")
        number("method.probability", self.probability, 0, 1)
        number("method.ascent_batches", self.ascent_batches, 1, 1_000_000)
        share("method.ascent_fraction", self.ascent_fraction)
        text("method.only", self.only)


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """The base optimizer, which makes the descent step."""

    name: Literal["sgd", "adamw"] = "sgd"
    """SGD with momentum, or AdamW."""
    lr: float = 0.05
    """Learning rate at its highest (0.05 in the paper, section 6.1)."""
    momentum: float = 0.9
    """SGD: momentum (0.9 in the paper, section 6.1)."""
    nesterov: bool = False
    """SGD: Nesterov's momentum."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW: decay rates of the gradient's mean and square."""
    weight_decay: float = 5e-4
    """Weight decay."""

    def __post_init__(self) -> None:
        positive("base.lr", self.lr)
        below_one("base.momentum", self.momentum)
        if self.nesterov and self.momentum == 0:
            raise ValueError("base.nesterov needs base.momentum greater than 0, got 0")
        for beta in self.betas:
            below_one("base.betas", beta)
        number("base.weight_decay", self.weight_decay, 0)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How the learning rate moves, step by step."""

    name: Literal["cosine", "constant", "step"] = "cosine"
    """Half a cosine down to 0, no change, or drops at `milestones`."""
    warmup_epochs: float = 0.0
    """Rise in a straight line from 0 over this many epochs first."""
    milestones: tuple[float, ...] = (0.5, 0.75)
    """step: where the drops are, as shares of the whole run."""
    gamma: float = 0.1
    """step: the factor of each drop."""

    def __post_init__(self) -> None:
        number("schedule.warmup_epochs", self.warmup_epochs, 0)
        for milestone in self.milestones:
            number("schedule.milestones", milestone, 0, 1)
        positive("schedule.gamma", self.gamma)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How the steps are computed; changes speed and rounding, not the method."""

    device: str = "auto"
    """`auto` (cuda, then mps, then cpu) or a device by name."""
    threads: int | None = None
    """CPU threads (null: torch's own choice)."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Autocast to this type (fp16 with a gradient scaler)."""
    channels_last: bool = False
    """Store images with their channels last (quicker convolutions on GPUs)."""
    compile: bool = False
    """Pass the network through `torch.compile`."""
    clip_norm: float | None = None
    """Clip the descent gradient to this norm; the ascent gradient is never clipped."""
    micro_batches: int = 1
    """Compute each batch in this many pieces, to save memory."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Under `torchrun`: replicate the network, or shard it (FSDP2)."""
    eval_batch_size: int | None = None
    """Images at a time in evaluation (null: as in training, at least 256)."""
    eval_epochs: int = 1
    """Measure validation and test images every n epochs, and after the last."""
    eval_test: bool = True
    """Measure the test images at all; the trials of a search do not."""
    checkpoint_epochs: int = 1
    """Write a checkpoint every n epochs (0: only the last)."""
    checkpoint_steps: int = 0
    """And every n steps within an epoch (0: never)."""
    keep_best: bool = True
    """Also keep the weights that did best (on validation images, else on the test)."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    decomposition: int = 0
    """Every n epochs, log what the perturbation is made of (0: never); costs a full gradient."""

    def __post_init__(self) -> None:
        text("engine.device", self.device)
        number("engine.threads", self.threads, 1, MOST_THREADS)
        positive("engine.clip_norm", self.clip_norm)
        number("engine.micro_batches", self.micro_batches, 1)
        number("engine.eval_batch_size", self.eval_batch_size, 1)
        number("engine.eval_epochs", self.eval_epochs, 1)
        number("engine.checkpoint_epochs", self.checkpoint_epochs, 0)
        number("engine.checkpoint_steps", self.checkpoint_steps, 0)
        number("engine.decomposition", self.decomposition, 0)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run."""

    data: DataConfig = field(default_factory=DataConfig)
    """The images."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The network."""
    method: MethodConfig = field(default_factory=MethodConfig)
    """The perturbation."""
    base: BaseConfig = field(default_factory=BaseConfig)
    """The base optimizer."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """The learning rate."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    """The machine."""
    epochs: int = 30
    """Passes over the training images."""
    seed: int = 0
    """Fixes initial weights, order, augmentation, subset and label noise."""
    output: str | None = None
    """The run's folder (null: `runs/<name of the run>`)."""

    def __post_init__(self) -> None:
        number("epochs", self.epochs, 1, 1_000_000)
        number("seed", self.seed, 0, LARGEST_SEED)
        text("output", self.output)
        if self.schedule.warmup_epochs >= self.epochs:
            raise ValueError(
                f"schedule.warmup_epochs must be below epochs ({self.epochs}), "
                f"got {self.schedule.warmup_epochs}"
            )
        if self.method.ascent_batches > 1 and self.method.ascent_fraction < 1:
            raise ValueError(
                "method.ascent_batches and method.ascent_fraction exclude each other, got "
                f"{self.method.ascent_batches} and {self.method.ascent_fraction}"
            )
        check_cache(self.model, crop=self.data.crop_padding, cutout=self.data.cutout)
        if self.engine.micro_batches > self.data.batch_size:
            raise ValueError(
                f"engine.micro_batches must be at most data.batch_size ({self.data.batch_size}), "
                f"got {self.engine.micro_batches}"
            )
