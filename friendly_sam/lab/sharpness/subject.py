"""What is examined: the last weights of a run, and the loss over some of its training images."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.data import Batches, ImageData, Split
from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.training.checkpoints import Checkpoints, load_weights
from friendly_sam.lab.training.checkpoints import fingerprint as digest_of
from friendly_sam.lab.training.distributed import World, choose_device
from friendly_sam.lab.training.network import build_model
from friendly_sam.lab.training.streams import load_data
from friendly_sam.sharpness import Objective
from friendly_sam.sharpness.modes import Mode

BATCH = 250
SUBSET_SEED = 20240617


@dataclass(frozen=True)
class Subject:
    """A trained network and the loss over some of its training images."""

    config: RunConfig
    model: nn.Module
    objective: Objective
    batches: Sequence[tuple[Tensor, Tensor]]


def subject(
    run_folder: Path, *, data_size: int = 2000, mode: Mode = "evaluation", device: str = "auto"
) -> Subject:
    """Load the last weights of a run, and training images with the labels it was trained on.

    The images are not augmented. Where there are more than `data_size`, a fixed choice of them is
    taken, the same for every run on the same data.
    """
    if data_size < 1:
        raise ValueError(f"data_size must be at least 1, not {data_size}")
    config, path = read_run(run_folder).config, last_weights(run_folder)
    here = World(device=choose_device(device))
    data = load_data(config)
    model = build_model(config, data, here)
    try:
        model.load_state_dict(load_weights(str(path)))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise LabError(f"{path} does not fit {config.model.name}: {reason}") from error
    batches = _batches(data, data_size, here, channels_last=config.engine.channels_last)
    try:
        objective = Objective(model, F.cross_entropy, batches, mode=mode)
    except ValueError as error:
        raise RunError(f"{run_folder}: {error}") from error
    return Subject(config, model, objective, batches)


def last_weights(run_folder: Path) -> Path:
    """Return the checkpoint with a run's last weights."""
    read_run(run_folder)
    path = Checkpoints(run_folder / "checkpoints").path("last")
    if path is None or not path.is_file():
        raise LabError(f"{run_folder} has no checkpoint yet")
    return path


def fingerprint(run_folder: Path) -> str:
    """Return the SHA-256 of a run's last checkpoint."""
    return digest_of(last_weights(run_folder))


def _batches(
    data: ImageData, size: int, here: World, *, channels_last: bool
) -> list[tuple[Tensor, Tensor]]:
    split = data.train
    if size < len(split):
        generator = torch.Generator().manual_seed(SUBSET_SEED)
        split = _take(split, torch.randperm(len(split), generator=generator)[:size].sort().values)
    stream = Batches(
        split,
        data,
        batch_size=BATCH,
        train=False,
        device=here.device,
        channels_last=channels_last,
    )
    return [(batch.images, batch.labels) for batch in stream.epoch(0)]


def _take(split: Split, chosen: Tensor) -> Split:
    images = split.images
    if isinstance(images, Tensor):
        images = images[chosen]
    else:
        images = copy.copy(images)  # encoded: only what is chosen will be decoded
        images._positions = images._positions[chosen]
    return Split(
        images=images, labels=split.labels[chosen], clean_labels=split.clean_labels[chosen]
    )
