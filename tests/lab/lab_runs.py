"""What the lab's tests share: runs so small that they take a fraction of a second."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import torch

from friendly_sam.lab.config.schema import (
    BaseConfig,
    DataConfig,
    EngineConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
)
from friendly_sam.lab.training.checkpoints import Checkpoints

Tiny = Callable[..., RunConfig]
Fsam = Callable[..., CompletedProcess[str]]


def tiny_config(
    output: Path,
    *,
    data: dict[str, Any] | None = None,
    method: dict[str, Any] | None = None,
    base: dict[str, Any] | None = None,
    engine: dict[str, Any] | None = None,
    model: str = "mlp",
    **top: Any,
) -> RunConfig:
    """Give a run on 250 digits with batches of 64: an epoch is 4 steps, the last one smaller."""
    config = RunConfig(
        data=DataConfig(**{"train_size": 250, "test_size": 200, "batch_size": 64, **(data or {})}),
        model=ModelConfig(name=model),
        method=MethodConfig(**(method or {})),
        base=BaseConfig(**(base or {})),
        engine=EngineConfig(
            **{"threads": 1, "device": "cpu", "tensorboard": False, **(engine or {})}
        ),
        epochs=2,
        output=str(output),
    )
    return dataclasses.replace(config, **top)


def same(first: Any, second: Any) -> bool:
    """Compare nested values bit for bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second) and first.dtype == second.dtype
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def checkpoint(folder: str | Path | None, which: str = "last") -> Path:
    """Give the path of a run's last or best checkpoint."""
    found = Checkpoints(Path(str(folder)) / "checkpoints").path(which)
    assert found is not None
    return found


def final_state(folder: str | Path | None) -> dict[str, Any]:
    """Read a run's last checkpoint, without what the clock and the folder's name put there."""
    state = torch.load(checkpoint(folder), weights_only=True)
    state.pop("best_step")  # a run that keeps no best ends with the same weights
    state["config"].pop("output")
    state["config"].pop("engine")
    state["position"].pop("metrics")
    state["position"].pop("digest")
    state["position"].pop("seconds")
    return dict(state)
