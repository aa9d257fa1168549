"""Which images the ascent gradient is computed on.

The direction of `SharpnessAware` decides what is done with that gradient; here is where it
comes from: the step's own batch, a part of it, a larger batch around it (figure 2(c)),
another batch (SAM-db), or the whole training set (SAM-full, SAM-noise).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from friendly_sam.lab.config import RunConfig
from friendly_sam.lab.data import Batches
from friendly_sam.lab.parts import Streams
from friendly_sam.lab.passes import Pair


@dataclass(frozen=True)
class Images:
    """What one gradient is computed on."""

    pairs: Iterable[Pair]
    """This process's images and labels, in pieces."""
    count: float
    """Images of all processes together, divided by the number of processes."""


def windows(batches: Batches, epoch: int, start: int, size: int) -> Iterator[list[Pair]]:
    """Give each batch of an epoch with the `size - 1` that follow it.

    Past the end of the epoch the window goes on with the epoch's first batches, so no image
    is twice in a window, and each window is a function of epoch and batch number alone.
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
    """Give the first part of a batch, at least one image; batches are in random order."""
    size = max(1, math.ceil(len(pair[1]) * fraction))
    return pair[0][:size], pair[1][:size]


def steps(
    config: RunConfig, streams: Streams, epoch: int, start: int
) -> Iterator[tuple[Images, Images | None]]:
    """Give, step by step, the descent batch and what to climb on (`None`: the same batch)."""
    method, train, other = config.method, streams.train, streams.other
    second = other.epoch(epoch, start=start) if other is not None else None
    for number, window in enumerate(
        windows(train, epoch, start, method.ascent_batches), start=start
    ):
        own = Images([window[0]], streams.count(number))
        if second is not None:
            batch = next(second)
            yield own, Images([(batch.images, batch.labels)], streams.count(number))
        elif method.ascent_fraction < 1:
            part = sub_batch(window[0], method.ascent_fraction)
            yield own, Images([part], len(part[1]))
        elif len(window) > 1:
            numbers = [(number + offset) % len(train) for offset in range(len(window))]
            yield own, Images(window, sum(streams.count(n) for n in numbers))
        else:
            yield own, None


def whole_set(streams: Streams) -> Images:
    """Give the whole training set in chunks, not augmented, with the labels trained on.

    The network is in training mode: BatchNorm uses each chunk's own statistics (and records
    none of them), so the full gradient is that of the chunks' mean loss. Its cost is one
    pass over the training set for every step.
    """
    pairs = ((batch.images, batch.labels) for batch in streams.whole.epoch(0))
    return Images(pairs, len(streams.data.train) / streams.here.size)
