"""All that a run needs to go on as if it had never stopped, as one dictionary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from friendly_sam.lab.config.identity import difference
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import from_dict, to_dict
from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.reading import checked
from friendly_sam.lab.training.checkpoints import State
from friendly_sam.lab.training.distributed import World
from friendly_sam.lab.training.generators import generator_states, set_generator_states
from friendly_sam.lab.training.tally import Tally


@dataclass
class Position:
    """How far a run has come."""

    epoch: int = 0
    """Epochs that are complete."""
    batch: int = 0
    """Batches done of the epoch under way."""
    best: float = -1.0
    """Highest accuracy so far."""
    seconds: float = 0.0
    """Time spent in the epoch under way."""
    metrics: int = 0
    """Bytes of metrics.jsonl."""
    digest: str = ""
    """SHA-256 of those bytes."""
    data: str = ""
    """Digest of the images and labels, see `ImageData.digest`; older runs have none."""


def capture(
    config: RunConfig,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    tally: Tally,
    position: Position,
    here: World,
) -> State:
    """Take a snapshot; every process must call this, the leading one writes the result."""
    weights, moments = _states(config, model, optimizer, here)
    own: dict[str, Any] = {
        "rng": generator_states(here.device),
        "sums": tally.sums.cpu(),
        "count": tally.count,
    }
    if here.size > 1 and not config.method.sync_ascent:
        own["optimizer"] = _to_cpu(moments)  # each process has its own EMA
    return {
        "config": to_dict(config),
        "model": weights,
        "optimizer": moments,
        "scaler": scaler.state_dict(),
        "position": dict(vars(position)),
        "processes": here.gather(own),
    }


def restore(
    state: State,
    config: RunConfig,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    tally: Tally,
    here: World,
) -> Position:
    """Put a snapshot back; one of another run is refused."""
    _check(state, config, here)
    try:
        own = state["processes"][here.rank]
        _load(
            config, model, optimizer, state["model"], own.get("optimizer", state["optimizer"]), here
        )
        scaler.load_state_dict(state["scaler"])
        tally.sums.copy_(own["sums"])
        tally.count = int(own["count"])
        set_generator_states(own["rng"], here.device)
        return _position(state["position"], config)
    except Exception as error:  # whatever a checkpoint of others leads to
        reason = " ".join(str(error).split())[:200]
        raise LabError(f"the checkpoint does not fit {config.model.name}: {reason}") from error


def _position(values: Any, config: RunConfig) -> Position:
    """Return a position whose values are of their kinds, and within the run."""
    shape = {"epoch": int, "batch": int, "best": float, "seconds": float, "metrics": int}
    checked(values, shape, "position")
    position = Position(**values)
    within = 0 <= position.epoch <= config.epochs and min(position.batch, position.metrics) >= 0
    if not within or not isinstance(position.digest, str) or not math.isfinite(position.seconds):
        raise ValueError("its position lies outside of the run")
    return position


def check_data(position: Position, digest: str) -> None:
    """Refuse to go on with other images than those that the run began with."""
    if position.data and digest and position.data != digest:
        raise LabError(
            "the images or labels are not those that this run began with (data.root, data.name): "
            "bring them back, or start again with --overwrite"
        )
    position.data = digest


def _check(state: State, config: RunConfig, here: World) -> None:
    try:
        saved = from_dict(state["config"], "checkpoint")
        processes = len(state["processes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise LabError("the checkpoint holds no run of this program") from error
    other = difference(saved, config)
    if other is not None:
        raise LabError(f"the checkpoint is of another run: {other}")
    if processes != here.size:
        raise LabError(
            f"the checkpoint was written by {counted(processes, 'process')}, this run has "
            f"{here.size}"
        )


def _sharded(config: RunConfig, here: World) -> bool:
    return here.size > 1 and config.engine.parallel == "fsdp"


def _states(
    config: RunConfig, model: nn.Module, optimizer: Optimizer, here: World
) -> tuple[State, State]:
    if not _sharded(config, here):
        return model.state_dict(), optimizer.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, moments = get_state_dict(model, optimizer, options=options)
    return dict(weights), dict(moments)


def _load(
    config: RunConfig,
    model: nn.Module,
    optimizer: Optimizer,
    weights: State,
    moments: State,
    here: World,
) -> None:
    if not _sharded(config, here):
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    options = StateDictOptions(full_state_dict=True)
    set_state_dict(
        model, optimizer, model_state_dict=weights, optim_state_dict=moments, options=options
    )


def _to_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: _to_cpu(item) for key, item in value.items()}
    return [_to_cpu(item) for item in value] if isinstance(value, list) else value
