"""Loss and accuracy of a network on a split, in inference mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from friendly_sam.lab.config.schema import EngineConfig
from friendly_sam.lab.data import Batches
from friendly_sam.lab.training.distributed import World
from friendly_sam.lab.training.gradients import autocast, never_empty
from friendly_sam.lab.training.tally import Tally


def evaluate(
    model: nn.Module, batches: Batches, config: EngineConfig, here: World
) -> tuple[float, float]:
    """Return mean loss and accuracy in percent over all of `batches`, in all processes.

    Each process takes its share of every batch. The network comes back in training mode.
    """
    tally = Tally(here.device)
    model.eval()
    # FSDP2 cannot gather its shards into inference tensors.
    sharded = here.size > 1 and config.parallel == "fsdp"
    try:
        with torch.no_grad() if sharded else torch.inference_mode():
            for batch in batches.epoch(0):
                images, labels = never_empty((batch.images, batch.labels))
                with autocast(config, here.device):
                    logits = model(images)
                    loss = F.cross_entropy(logits, labels)
                if len(batch.labels):
                    tally.add(loss, logits, labels)
    finally:
        model.train()
    return tally.read(here)
