"""Which samples the gradients of a step are computed on.

The descent uses the batch of the step. The ascent uses the same batch, the first part of it, a
larger batch around it (figure 2(c)), another batch (SAM-db) or the whole training set (SAM-full).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.data import Batches
from friendly_sam.lab.training.gradients import Pair
from friendly_sam.lab.training.streams import Streams


@dataclass(frozen=True)
class Samples:
    """What one gradient is computed on."""

    pairs: Iterable[Pair]
    """This process's images and labels, one pair or several."""
    count: float
    """Images of all processes together, divided by the number of processes."""
    divisible: bool = True
    """Whether the pairs may be cut into micro-batches; chunks of a training set are not."""

    def pieces(self, count: int) -> Iterable[Pair]:
        """Cut each pair into `count` micro-batches, the same number in every process."""
        if count == 1 or not self.divisible:
            return self.pairs
        return (
            piece
            for images, labels in self.pairs
            for piece in zip(images.tensor_split(count), labels.tensor_split(count), strict=True)
        )


def windows(batches: Batches, epoch: int, start: int, size: int) -> Iterator[list[Pair]]:
    """Yield each batch of an epoch with the `size - 1` that follow it.

    Past the end of the epoch the window continues with the epoch's first batches, so no image is
    twice in a window, and each window is a function of epoch and batch number alone.
    """
    stream = batches.epoch(epoch, start=start)
    if size > 1:
        stream = chain(stream, batches.epoch(epoch, start=0))
    pairs = ((batch.images, batch.labels) for batch in stream)
    window = deque(islice(pairs, size))
    for _ in range(start, len(batches)):
        yield list(window)
        window.popleft()
        window.extend(islice(pairs, 1))


def sub_batch(pair: Pair, fraction: float) -> Pair:
    """Return the first images of a batch, at least one; batches are in random order."""
    size = max(1, math.ceil(len(pair[1]) * fraction))
    return pair[0][:size], pair[1][:size]


def step_batches(
    config: RunConfig, streams: Streams, epoch: int, start: int
) -> Iterator[tuple[Samples, Samples | None]]:
    """Yield, step by step, the descent batch and the ascent batch (`None`: the same)."""
    method, train, other = config.method, streams.train, streams.other
    whole = METHODS[method.name].ascent == "training set"
    second = other.epoch(epoch, start=start) if other is not None else None
    for number, window in enumerate(
        windows(train, epoch, start, method.ascent_batches), start=start
    ):
        own = Samples([window[0]], streams.count(number))
        if whole:
            yield own, whole_set(streams)
        elif second is not None:
            batch = next(second)
            yield own, Samples([(batch.images, batch.labels)], streams.count(number))
        elif method.ascent_fraction < 1:
            first = sub_batch(window[0], method.ascent_fraction)
            yield own, Samples([first], len(first[1]))
        elif len(window) > 1:
            numbers = [(number + offset) % len(train) for offset in range(len(window))]
            yield own, Samples(window, sum(streams.count(n) for n in numbers))
        else:
            yield own, None


def whole_set(streams: Streams) -> Samples:
    """Return the whole training set in chunks, not augmented, with the labels trained on.

    The network is in training mode: BatchNorm uses each chunk's own statistics (and records
    none of them), so the full gradient is that of the chunks' mean loss. Its cost is one
    pass over the training set for every step.
    """
    pairs = ((batch.images, batch.labels) for batch in streams.whole.epoch(0))
    return Samples(pairs, len(streams.data.train) / streams.here.size, divisible=False)
