"""Forward and backward over a batch, in micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from friendly_sam.lab.config.schema import EngineConfig
from friendly_sam.lab.training.distributed import unreduced
from friendly_sam.lab.training.tally import Tally

Pair = tuple[Tensor, Tensor]
"""Images and labels."""


def autocast(config: EngineConfig, device: torch.device) -> AbstractContextManager[None]:
    """Return the context that forward passes run in."""
    if config.precision == "fp32":
        return nullcontext()
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float16
    return torch.autocast(device.type, dtype=dtype)


class Backward:
    """Computes the gradient of the mean loss over pairs of images and labels.

    The pieces' gradients add up in `.grad`, each weighed by its share of the images, and
    under DDP they are summed over processes once, with the last piece: the result is the
    gradient of the whole batch, however it is cut.
    """

    def __init__(self, forward: nn.Module, config: EngineConfig, device: torch.device) -> None:
        self.forward = forward
        self.config = config
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "fp16")

    def __call__(self, pairs: Iterable[Pair], images: float, tally: Tally | None = None) -> Tensor:
        """Run forward and backward.

        Args:
            pairs: the pieces of the batch; taken one at a time.
            images: how many images all pieces of all processes hold together, divided by the
                number of processes, whose gradients DDP and FSDP2 average.
            tally: where to count loss and hits, if anywhere.

        Returns:
            The mean loss.
        """
        total = torch.zeros((), device=self.device)
        for pair, last in _with_last(pairs):
            count = len(pair[1])
            inputs, labels = never_empty(pair)
            with nullcontext() if last else unreduced(self.forward):
                with autocast(self.config, self.device):
                    logits = self.forward(inputs)
                    loss = F.cross_entropy(logits, labels)
                share = count / images
                scaled = self.scaler.scale(loss * share if share != 1 else loss)
                scaled.backward()  # type: ignore[no-untyped-call]
            if tally is not None and count:
                tally.add(loss, logits, labels)
            total += loss.detach() * share
        return total


def never_empty(pair: Pair) -> Pair:
    """Put one blank image for an empty share: passes of many processes must keep step."""
    images, labels = pair
    if len(labels):
        return pair
    return images.new_zeros((1, *images.shape[1:])), labels.new_zeros(1)


def _with_last(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, bool]]:
    """Yield each pair with whether it is the last."""
    stream = iter(pairs)
    current = next(stream, None)
    while current is not None:
        following = next(stream, None)
        yield current, following is None
        current = following
