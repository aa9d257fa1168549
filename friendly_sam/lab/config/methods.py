"""The registry of methods: what each is called, what it is made of, how figures show it.

Config, presets, `fsam list`, tables, figures and the Hugging Face adapter read it, so that a new
method is one entry of `METHODS`: a choice of components (see `components`), which bring the
settings that apply. This module needs torch and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch.optim import Optimizer

from friendly_sam import Every, Policy, SharpnessAware
from friendly_sam.lab.config.components import (
    AVERAGE,
    BATCH_NOISE,
    DIAGONAL_FISHER,
    EUCLIDEAN,
    GRADIENT,
    MOMENTUM,
    PARAMETER_SCALED,
    RESIDUAL,
    REUSED,
    STALE_BATCH_NOISE,
    STALE_GRADIENT,
    SURROGATE_GAP,
    WEIGHTED,
    Component,
    Setting,
)
from friendly_sam.lab.errors import did_you_mean

Colour = Literal["grey", "vermilion", "blue", "green", "orange", "purple", "sky", "black"]
"""The colours that a method can have in figures, see `friendly_sam.lab.plotting.palette`."""

EVERY_STEP = Setting(1, "the sources of all but LookSAM")

Ascent = Literal["none", "batch", "other batch", "training set"]
"""What the ascent gradient is computed on; `none`: there is no ascent pass."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method."""

    label: str
    """Its name in tables and figures."""
    description: str
    """One line for `fsam list`."""
    colour: Colour
    marker: str
    """matplotlib's code; no two methods share colour and marker."""
    rho: Setting | None = None
    """The radius; `None`: it has none."""
    components: tuple[Component, ...] = ()
    """What it is made of; empty: the base optimizer alone."""
    ascent: Ascent = "batch"
    every: Setting = EVERY_STEP
    """The period of its ascents, where no policy is given."""

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that apply to it, by name."""
        found = {} if self.rho is None else {"rho": self.rho}
        for component in self.components:
            found |= component.settings
        return found

    @property
    def passes(self) -> int:
        """Forward and backward passes over a batch that a step with an ascent takes."""
        return 2 if self.ascent in ("batch", "other batch") else 1

    @property
    def full_gradient(self) -> bool:
        """Whether a step needs the gradient over the whole training set."""
        needs = {name for component in self.components for name in component.needs}
        return self.ascent == "training set" or "full_gradient" in needs

    @property
    def self_contained(self) -> bool:
        """Whether it needs nothing but the step's own batch, so that any training loop has it."""
        return bool(self.components) and self.ascent in ("none", "batch") and not self.full_gradient


_SAM = Setting(0.05, "davda54/sam")
_ASAM = Setting(0.5, "SamsungLabs/ASAM on CIFAR-10, with eta 0.01")
_FISHER = Setting(0.1, "the F-SAM paper, section 6.1")

METHODS: dict[str, Method] = {
    "base": Method(
        label="base",
        description="the base optimizer alone, one pass per step",
        colour="grey",
        marker="D",
        ascent="none",
    ),
    "sam": Method(
        label="SAM",
        description="perturb along the batch gradient",
        colour="vermilion",
        marker="s",
        rho=_SAM,
        components=(GRADIENT, EUCLIDEAN),
    ),
    "asam": Method(
        label="ASAM",
        description="SAM in a neighbourhood scaled by the weights",
        colour="orange",
        marker="^",
        rho=_ASAM,
        components=(GRADIENT, PARAMETER_SCALED),
    ),
    "fishersam": Method(
        label="FisherSAM",
        description="SAM in a neighbourhood scaled by the diagonal Fisher information",
        colour="green",
        marker="P",
        rho=_FISHER,
        components=(GRADIENT, DIAGONAL_FISHER),
    ),
    "fsam": Method(
        label="F-SAM",
        description="perturb along the noise of the batch: its gradient minus the EMA of gradients",
        colour="blue",
        marker="o",
        rho=_SAM,
        components=(BATCH_NOISE, EUCLIDEAN),
    ),
    "fasam": Method(
        label="F-ASAM",
        description="F-SAM's direction in ASAM's neighbourhood",
        colour="sky",
        marker="v",
        rho=_ASAM,
        components=(BATCH_NOISE, PARAMETER_SCALED),
    ),
    "ffishersam": Method(
        label="F-FisherSAM",
        description="F-SAM's direction in FisherSAM's neighbourhood",
        colour="green",
        marker="X",
        rho=_FISHER,
        components=(BATCH_NOISE, DIAGONAL_FISHER),
    ),
    "sam-full": Method(
        label="SAM-full",
        description="perturb along the gradient of the whole training set (slow; figure 2(a))",
        colour="purple",
        marker="X",
        rho=_SAM,
        components=(GRADIENT, EUCLIDEAN),
        ascent="training set",
    ),
    "sam-db": Method(
        label="SAM-db",
        description="perturb along the gradient of another random batch (figure 2(b))",
        colour="green",
        marker="d",
        rho=_SAM,
        components=(GRADIENT, EUCLIDEAN),
        ascent="other batch",
    ),
    "sam-noise": Method(
        label="SAM-noise",
        description="perturb along the component orthogonal to the full gradient (slow)",
        colour="sky",
        marker="o",
        rho=_SAM,
        components=(RESIDUAL, EUCLIDEAN),
    ),
    "vasso": Method(
        label="VaSSO",
        description="perturb along the EMA of gradients, their variance suppressed",
        colour="purple",
        marker="v",
        rho=Setting(0.1, "VaSSO, the experiments on CIFAR"),
        components=(AVERAGE, EUCLIDEAN),
    ),
    "gsam": Method(
        label="GSAM",
        description="SAM that also lowers the surrogate gap",
        colour="vermilion",
        marker="^",
        rho=_SAM,
        components=(GRADIENT, EUCLIDEAN, SURROGATE_GAP),
    ),
    "wsam": Method(
        label="WSAM",
        description="SAM with a weight on its sharpness term (0.5 is SAM)",
        colour="vermilion",
        marker="v",
        rho=Setting(0.05, "atorch"),
        components=(GRADIENT, EUCLIDEAN, WEIGHTED),
    ),
    "looksam": Method(
        label="LookSAM",
        description="SAM on every k-th step, its component reused on the steps between",
        colour="orange",
        marker="s",
        rho=_SAM,
        components=(GRADIENT, EUCLIDEAN, REUSED),
        every=Setting(5, "LookSAM, the main experiments"),
    ),
    "msam": Method(
        label="MSAM",
        description="perturb against the base's momentum, one pass per step",
        colour="black",
        marker="*",
        rho=Setting(0.3, "MSAM, the default of its code"),
        components=(MOMENTUM, EUCLIDEAN),
        ascent="none",
    ),
    "stale-sam": Method(
        label="Stale-SAM",
        description="perturb along the previous step's gradient, one pass per step (AsyncSAM)",
        colour="vermilion",
        marker="D",
        rho=_SAM,
        components=(STALE_GRADIENT, EUCLIDEAN),
        ascent="none",
    ),
    "stale-fsam": Method(
        label="Stale-F-SAM",
        description="F-SAM's direction of the previous step's gradient, one pass per step",
        colour="blue",
        marker="D",
        rho=_SAM,
        components=(STALE_BATCH_NOISE, EUCLIDEAN),
        ascent="none",
    ),
}
"""Every method by its name on the command line."""

BASES = {"sgd": "SGD", "adamw": "AdamW"}
"""The labels of the base optimizers, which stand for `base` in tables and figures."""

SETTINGS = tuple(dict.fromkeys(name for method in METHODS.values() for name in method.settings))
"""Every setting that applies to some method."""


def find(name: str, among: Iterable[str] = METHODS) -> str:
    """Return the name of a method by its name or its label, whatever the case."""
    known = list(among)
    spelt = {method.label.lower(): key for key, method in METHODS.items()}
    key = spelt.get(name.lower(), name.lower())
    if key not in known:
        raise ValueError(unknown_method(name, known))
    return key


def unknown_method(name: str, known: Iterable[str] = METHODS) -> str:
    """Return what to say of a name that is not known."""
    known = list(known)
    return f"unknown method {name!r}{did_you_mean(name, known)}: choose from {', '.join(known)}"


def complete(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every setting of a method, given or default; refuse one that does not apply."""
    settings = METHODS[name].settings
    for setting, value in given.items():
        if setting not in settings:
            own = ", ".join(settings) or "none"
            raise ValueError(f"{setting}={value} does not apply to method {name} (settings: {own})")
    return {key: setting.default for key, setting in settings.items()} | dict(given)


def build(
    base: Optimizer,
    name: str,
    settings: Mapping[str, Any],
    *,
    when: Policy | None = None,
    provided: Mapping[str, Any] | None = None,
    **options: Any,
) -> SharpnessAware:
    """Return a method over a base optimizer.

    Args:
        base: the base optimizer.
        name: a method of `METHODS`, other than `base`.
        settings: all of its settings, as `complete` returns them.
        when: on which steps the weights are perturbed (default: the method's own policy).
        provided: what its components need from the training loop, such as `full_gradient`.
        options: `model`, `sync_ascent` and `replay_rng` of `SharpnessAware`.
    """
    values = {**settings, **(provided or {})}
    components = {
        component.keyword: component.build(
            *[values[need] for need in component.needs],
            **{name: values[name] for name in component.settings},
        )
        for component in METHODS[name].components
    }
    when = Every(METHODS[name].every.default) if when is None else when
    return SharpnessAware(base, settings["rho"], **components, when=when, **options)
