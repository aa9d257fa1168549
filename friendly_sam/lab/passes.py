"""Forward and backward over a batch, in pieces, with sums kept on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from friendly_sam.lab.config import EngineConfig
from friendly_sam.lab.distributed import World, unreduced
from friendly_sam.lab.errors import RunError

Pair = tuple[Tensor, Tensor]
"""Images and labels."""


class Tally:
    """Loss and hits over many batches; reading them is the only time the host waits."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)
        """Sum of losses, number of right answers."""
        self.count = 0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count in a batch with its mean loss."""
        hits = (logits.detach().argmax(dim=1) == labels).sum()
        self.sums += torch.stack((loss.detach().float() * len(labels), hits.float()))
        self.count += len(labels)

    def check(self, where: str) -> None:
        """Stop a run whose loss is no longer a number."""
        if self.count and not torch.isfinite(self.sums[0]).item():
            raise RunError(
                f"the loss is {self.sums[0].item()} {where}; "
                "a smaller base.lr or method.rho may help"
            )

    def read(self, here: World) -> tuple[float, float]:
        """Give mean loss and accuracy in percent, over all processes."""
        totals = torch.cat((self.sums, self.sums.new_tensor([float(self.count)])))
        loss, hits, count = here.sum(totals).tolist()
        return loss / max(count, 1), 100 * hits / max(count, 1)


def autocast(config: EngineConfig, device: torch.device) -> AbstractContextManager[None]:
    """Give the context that forward passes run in."""
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
    """Tell of each pair whether it is the last."""
    stream = iter(pairs)
    current = next(stream, None)
    while current is not None:
        following = next(stream, None)
        yield current, following is None
        current = following


def pieces(pairs: Iterable[Pair], count: int) -> list[Pair]:
    """Cut each pair into `count` micro-batches, the same number in every process."""
    if count == 1:
        return list(pairs)
    return [
        piece
        for images, labels in pairs
        for piece in zip(images.tensor_split(count), labels.tensor_split(count), strict=True)
    ]
