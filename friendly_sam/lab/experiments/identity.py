"""The name of a run's folder: what is in it, and a hash of every setting that makes it that run.

Two rows that need the same run get the same name, so it is done once. Settings that say
where and how a run is computed (`parsing.FREE`: output, data root, threads, ...) are left
out, so a run keeps its name on another machine. Weights that come from another run are
written `run:<name>`; only `place` turns that into a path.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from friendly_sam.lab.config import RunConfig
from friendly_sam.lab.methods import resolve, run_name
from friendly_sam.lab.parsing import FREE, LATER, flatten

RUN = "run:"
"""Prefix of weights that another run leaves."""

FOLDERS = {"flowers": "flowers102", "pets": "oxford-pets", "cars": "stanford-cars"}
"""Folders of the data root, where they are not called like the data set."""


def identity(config: RunConfig) -> str:
    """Name a run."""
    resolved = resolve(config)
    settings = {
        key: value
        for key, value in flatten(resolved).items()
        if key not in FREE and not (key in LATER and value == LATER[key])
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return f"{run_name(resolved)}-{digest[:10]}"


def weights_from(run: RunConfig) -> str:
    """Name the weights that a run leaves, for `model.weights` of another."""
    return RUN + identity(run)


def needs(config: RunConfig) -> str | None:
    """Name the run whose weights this one starts from."""
    weights = config.model.weights or ""
    return weights.removeprefix(RUN) if weights.startswith(RUN) else None


def place(config: RunConfig, folder: Path, data_root: Path | None = None) -> RunConfig:
    """Give a run its folder below `folder`, its data, and the path of its first weights."""
    model, data = config.model, config.data
    first = needs(config)
    if first is not None:
        model = dataclasses.replace(model, weights=str(folder / first))
    if data_root is not None and data.name != "digits":
        root = data_root / FOLDERS.get(data.name, data.name)
        data = dataclasses.replace(data, root=str(root))
    output = str(folder / identity(config))
    return dataclasses.replace(config, model=model, data=data, output=output)
