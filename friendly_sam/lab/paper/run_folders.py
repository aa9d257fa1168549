"""Where a run of an experiment is: its folder, its data, and the weights it starts from.

Two experiments that need the same run give it the same name (`config.identity`), so it is done
once. Weights that come from another run are written `run:<name>`; only `place` turns that into a
path.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from friendly_sam.lab.config.identity import identity
from friendly_sam.lab.config.schema import RunConfig

RUN = "run:"
"""Prefix of weights that another run leaves."""

FOLDERS = {"flowers": "flowers102", "pets": "oxford-pets", "cars": "stanford-cars"}
"""Folders of the data root, where they are not called like the data set."""


def weights_from(run: RunConfig) -> str:
    """Name the weights that a run leaves, for `model.weights` of another."""
    return RUN + identity(run)


def needs(config: RunConfig) -> str | None:
    """Name the run whose weights this one starts from."""
    weights = config.model.weights or ""
    return weights.removeprefix(RUN) if weights.startswith(RUN) else None


def place(config: RunConfig, folder: Path, data_root: Path | None = None) -> RunConfig:
    """Return a run its folder below `folder`, its data, and the path of its first weights."""
    model, data = config.model, config.data
    first = needs(config)
    if first is not None:
        model = dataclasses.replace(model, weights=str(folder / first))
    if model.trained_blocks is not None:
        model = dataclasses.replace(model, cache=str(folder.parent / "features"))
    if data_root is not None and data.name != "digits":
        root = data_root / FOLDERS.get(data.name, data.name)
        data = dataclasses.replace(data, root=str(root))
    output = str(folder / identity(config))
    return dataclasses.replace(config, model=model, data=data, output=output)
