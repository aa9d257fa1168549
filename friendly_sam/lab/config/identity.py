"""Which settings make a run that run: the name of its folder, and what sets two runs apart.

Settings that say where and how a run is computed (`FREE`: output, data root, threads, ...) are
left out, so a run keeps its name on another machine.
"""

from __future__ import annotations

import hashlib
import json

from friendly_sam.lab.config.resolve import resolve, run_name
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import flatten

FREE = {
    "output",
    "data.root",
    "data.workers",
    "model.cache",
    "engine.device",
    "engine.threads",
    "engine.eval_batch_size",
    "engine.checkpoint_epochs",
    "engine.checkpoint_steps",
    "engine.keep_best",
    "engine.tensorboard",
    "engine.decomposition",
}
"""Settings that say where and how a run is computed, not which run it is."""


LATER = {
    "data.smallest_crop": 0.08,
    "data.in_memory": None,  # it was free, though it decides whether images are cropped
    "model.batch_norm": None,
    "model.trained_blocks": None,
    "engine.eval_epochs": 1,
    "engine.eval_test": True,
    "method.average": "full",
    "method.layers": "all",
    **dict.fromkeys(
        f"method.{name}" for name in ("theta", "alpha", "gamma", "start", "probability")
    ),
}
"""Settings that came later, with what stood for them before: runs keep the names they had."""


def difference(saved: RunConfig, wanted: RunConfig) -> str | None:
    """Name the first setting in which two configs are different runs; `None`: the same run."""
    there, here = flatten(saved), flatten(wanted)
    for key, value in here.items():
        if key not in FREE and there[key] != value:
            return f"{key} is {there[key]} there and {value} here"
    return None


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
