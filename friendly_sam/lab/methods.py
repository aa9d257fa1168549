"""The methods by name, and their defaults: the one place where a `None` gets its value."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from friendly_sam.lab.config import MethodConfig, MethodName, RunConfig
from friendly_sam.lab.errors import LabError

# Radius of SAM, and of everything built on it: the default of davda54/sam.
_SAM: dict[str, Any] = {"rho": 0.05}
# SamsungLabs/ASAM: rho 0.5 with eta 0.01 on CIFAR-10.
_ASAM: dict[str, Any] = {"rho": 0.5, "eta": 0.01}
# F-SAM paper, section 6.1: rho 0.1; it names no eta, and 1 is ours.
_FISHER: dict[str, Any] = {"rho": 0.1, "eta": 1.0}
# F-SAM paper, section 6.1: sigma 1 throughout; lambda 0.9 for the larger networks.
_FRIENDLY: dict[str, Any] = {"sigma": 1.0, "decay": 0.9, "variant": "paper"}


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """One method: what it is called, what it does, what its settings are by default."""

    label: str
    """The name in tables and pictures."""
    description: str
    """One line for `fsam list`."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """The settings that have a meaning for it, with their values."""


METHODS: dict[MethodName, MethodInfo] = {
    "base": MethodInfo(label="base", description="the base optimizer alone, one pass a step"),
    "sam": MethodInfo(label="SAM", description="climb along the batch gradient", defaults=_SAM),
    "asam": MethodInfo(
        label="ASAM", description="SAM in a ball scaled by the weights", defaults=_ASAM
    ),
    "fishersam": MethodInfo(
        label="FisherSAM",
        description="SAM in a ball scaled by the diagonal Fisher information",
        defaults=_FISHER,
    ),
    "fsam": MethodInfo(
        label="F-SAM",
        description="climb along the batch's own noise: gradient minus its running mean",
        defaults=_SAM | _FRIENDLY,
    ),
    "fasam": MethodInfo(
        label="F-ASAM", description="F-SAM's direction in ASAM's ball", defaults=_ASAM | _FRIENDLY
    ),
    "ffishersam": MethodInfo(
        label="F-FisherSAM",
        description="F-SAM's direction in FisherSAM's ball",
        defaults=_FISHER | _FRIENDLY,
    ),
    "sam-full": MethodInfo(
        label="SAM-full",
        description="climb along the gradient of the whole training set (slow; figure 2(a))",
        defaults=_SAM,
    ),
    "sam-db": MethodInfo(
        label="SAM-db",
        description="climb along the gradient of another random batch (figure 2(b))",
        defaults=_SAM,
    ),
    "sam-noise": MethodInfo(
        label="SAM-noise",
        description="climb along the part of the gradient orthogonal to the whole set's (slow)",
        defaults=_SAM,
    ),
}

_OWN_BATCH: tuple[MethodName, ...] = ("base", "sam-full", "sam-db")
"""Methods whose ascent does not start from the step's batch."""


def resolve(config: RunConfig) -> RunConfig:
    """Fill in the method's defaults and the name of the folder; refuse what has no meaning.

    Resolving twice changes nothing.
    """
    method, info = config.method, METHODS[config.method.name]
    for name in ("rho", "sigma", "decay", "variant", "eta"):
        value = getattr(method, name)
        if value is not None and name not in info.defaults:
            raise LabError(
                f"method.{name}={value} has no meaning for method {method.name}; leave it out"
            )
    if method.only is not None and method.name not in ("asam", "fasam"):
        raise LabError(f"method.only={method.only} has no meaning for method {method.name}")
    for name in ("ascent_batches", "ascent_fraction"):
        if getattr(method, name) != 1 and method.name in _OWN_BATCH:
            raise LabError(
                f"method.{name}={getattr(method, name)} has no meaning for method {method.name}, "
                "whose ascent does not use the step's batch"
            )
    missing = {name: v for name, v in info.defaults.items() if getattr(method, name) is None}
    resolved = dataclasses.replace(config, method=dataclasses.replace(method, **missing))
    if resolved.output is not None:
        return resolved
    return dataclasses.replace(resolved, output=f"runs/{run_name(resolved)}")


def label(config: RunConfig) -> str:
    """Name the method as tables and pictures do: SGD, SAM, F-SAM, ..."""
    if config.method.name == "base":
        return {"sgd": "SGD", "adamw": "AdamW"}[config.base.name]
    return METHODS[config.method.name].label


def passes(config: RunConfig) -> float:
    """Estimate the passes over the training images that one epoch costs."""
    method = config.method
    if method.name == "base":
        return 1.0
    ascent = method.ascent_batches * method.ascent_fraction
    if method.name in ("sam-full", "sam-noise"):
        size = config.data.train_size or 50_000
        ascent = (method.name == "sam-noise") + size / config.data.batch_size
    return 1.0 + ascent / method.every


def run_name(config: RunConfig) -> str:
    """Name a run's folder after what is in it."""

    def safe(text: str) -> str:
        return "".join(c if c.isalnum() or c in "._+" else "-" for c in text).strip("-.")

    method: MethodConfig = config.method
    parts = [config.data.name.split("/")[-1], config.model.name.split("/")[-1]]
    parts.append(config.base.name if method.name == "base" else method.name)
    if method.rho is not None:
        parts.append(f"rho{method.rho:g}")
    if config.data.label_noise:
        parts.append(f"noise{config.data.label_noise:g}")
    parts.append(f"seed{config.seed}")
    return "-".join(safe(part) for part in parts)
