"""Settings of a run by their dotted names, such as `base.lr`: read and replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError, did_you_mean

Setting = float | int | str | bool
"""The value of a setting that can be searched for."""


def value(run: RunConfig, name: str) -> Any:
    """Return a setting."""
    found: Any = run
    for part in name.split("."):
        if not hasattr(found, part):
            raise LabError(f"unknown setting {name!r}{did_you_mean(name, names(run))}")
        found = getattr(found, part)
    return found


def names(run: RunConfig) -> list[str]:
    """List the dotted names of all settings."""
    found = []
    for field in dataclasses.fields(run):
        inner = getattr(run, field.name)
        if dataclasses.is_dataclass(inner):
            found += [f"{field.name}.{part.name}" for part in dataclasses.fields(inner)]
        else:
            found.append(field.name)
    return found


def changed(run: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Return the run with other settings.

    >>> changed(RunConfig(), {"base.lr": 0.2, "epochs": 3}).base.lr
    0.2
    """
    for name, new in settings.items():
        value(run, name)
        group, dot, field = name.partition(".")
        inner = dataclasses.replace(getattr(run, group), **{field: new}) if dot else new
        run = dataclasses.replace(run, **{group: inner})
    return run


def as_trial(run: RunConfig) -> RunConfig:
    """Return the run as a trial of a search: it never looks at the test images.

    It is judged by its validation images after the last epoch, and measures them then alone where
    the run does not measure them after every epoch.

    >>> as_trial(RunConfig(epochs=3)).engine.eval_test
    False
    """
    often = run.engine.eval_epochs == 1
    seldom = {} if often else {"engine.eval_epochs": run.epochs}
    return changed(run, {"engine.eval_test": False, **seldom})
