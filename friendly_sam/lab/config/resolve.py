"""From what was asked for to what will run: the defaults of the method, filled in.

Also what follows from a resolved config: the label of its method, its cost in passes, and the name
of its folder.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from friendly_sam.lab.config.components import MOMENTUM
from friendly_sam.lab.config.methods import BASES, METHODS, SETTINGS, complete
from friendly_sam.lab.config.model import ModelConfig
from friendly_sam.lab.config.policies import complete_policy, perturbed_share
from friendly_sam.lab.config.schema import DataConfig, MethodConfig, RunConfig
from friendly_sam.lab.errors import LabError

FROZEN_BY_DEFAULT = ("efficientnet_lite0",)
"""Pretrained networks that are fine-tuned with the statistics of BatchNorm frozen."""
FROZEN_DIVISOR = 5
"""Of the method's own radius, for the default there: nothing rescales what the perturbation does to
the activations, and at the usual radius a network can collapse to one class."""


def resolve(config: RunConfig) -> RunConfig:
    """Fill in the method's defaults and the name of the folder; refuse what does not apply.

    Resolving twice changes nothing.
    """
    method, unset = config.method, MethodConfig()
    values = {name: getattr(method, name) for name in SETTINGS}
    given = {name: value for name, value in values.items() if value != getattr(unset, name)}
    try:
        settings = complete(method.name, given)
    except ValueError as error:
        raise LabError(f"method.{error}; leave it out") from error
    for name in ("ascent_batches", "ascent_fraction"):
        if getattr(method, name) != 1 and METHODS[method.name].ascent != "batch":
            raise LabError(
                f"method.{name}={getattr(method, name)} does not apply to method {method.name}, "
                "whose ascent does not use the step's batch"
            )
    along_momentum = MOMENTUM in METHODS[method.name].components
    if along_momentum and config.base.name == "sgd" and config.base.momentum == 0:
        raise LabError(f"method {method.name} needs base.momentum above 0, got 0")
    network = _with_batch_norm(config.model)
    if network.batch_norm == "frozen" and method.rho is None and "rho" in settings:
        settings["rho"] = float(settings["rho"]) / FROZEN_DIVISOR
    settings |= complete_policy(method)
    resolved = dataclasses.replace(
        config,
        data=_named(config.data),
        model=network,
        method=dataclasses.replace(method, **settings),
    )
    if resolved.output is not None:
        return resolved
    return dataclasses.replace(resolved, output=f"runs/{run_name(resolved)}")


def _named(data: DataConfig) -> DataConfig:
    """Name a folder of images after itself: the digits, which `name` stands for, have none."""
    if data.root is None or data.name != DataConfig().name:
        return data
    return dataclasses.replace(data, name=Path(data.root).expanduser().resolve().name or "folder")


def _with_batch_norm(model: ModelConfig) -> ModelConfig:
    if model.batch_norm is None and model.name in FROZEN_BY_DEFAULT:
        return dataclasses.replace(model, batch_norm="frozen")
    return model


def label(config: RunConfig) -> str:
    """Return the method's name as tables and figures have it: SGD, SAM, F-SAM, ..."""
    if config.method.name == "base":
        return BASES[config.base.name]
    return METHODS[config.method.name].label


def passes(config: RunConfig) -> float:
    """Estimate the passes over the training images that one epoch costs."""
    settings, method = config.method, METHODS[config.method.name]
    ascent = 0.0
    if method.passes == 2:
        ascent = settings.ascent_batches * settings.ascent_fraction
    if method.full_gradient:
        ascent += (config.data.train_size or 50_000) / config.data.batch_size
    return 1.0 + ascent * perturbed_share(settings, steps(config))


def steps(config: RunConfig) -> int:
    """Estimate the steps of a run."""
    return config.epochs * math.ceil((config.data.train_size or 50_000) / config.data.batch_size)


def run_name(config: RunConfig) -> str:
    """Return the name of a run's folder, after what is in it."""

    def safe(text: str) -> str:
        return "".join(c if c.isalnum() or c in "._+" else "-" for c in text).strip("-.")

    method = config.method
    words = [config.data.name.split("/")[-1], config.model.name.split("/")[-1]]
    words.append(config.base.name if method.name == "base" else method.name)
    if method.rho is not None:
        words.append(f"rho{method.rho:g}")
    if config.data.label_noise:
        words.append(f"noise{config.data.label_noise:g}")
    words.append(f"seed{config.seed}")
    return "-".join(safe(word) for word in words)
