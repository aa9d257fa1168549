"""The floor: as many bytes as the arithmetic must move, merely streamed.

In float32, SAM's ascent reads g twice and w once, and writes w + ε and the copy of w: 20 bytes a
parameter. ASAM's reads w and g twice, and writes T² g as well: 28. F-SAM's reads g and m twice and
w once, and writes m, w + ε and the copy of w: 32. The restore reads the copy and writes w: 8. The
floor moves that many bytes over warm buffers that have, together, the size of what the method holds
(w, g, the copy and, for F-SAM, m), each by one call over a whole buffer, with the same number of
threads. Two of them:

    copies        from buffer to buffer, the usual measure of bandwidth: 8 bytes a number
    same pattern  the reads, updates in place and writes of the method, each by the plainest call

The second is the lower one: a copy makes the cache fetch lines that are then overwritten.
"""

from __future__ import annotations

import torch

from friendly_sam.lab.bench.peers import Contender

ASCENT_BYTES = {"SAM": 20, "ASAM": 28, "F-SAM": 32}
RESTORE_BYTES = 8
HELD = {"SAM": 3, "ASAM": 3, "F-SAM": 4}
"""Tensors of the parameters' size that a method holds: w, g, the copy of w, and m."""


def copies(method: str, parameters: int) -> Contender:
    """The bytes of a method by copies between its buffers."""
    buffers = [torch.ones(parameters) for _ in range(HELD[method])]
    place = 0

    def move(numbers: int) -> None:
        nonlocal place
        while numbers:
            size = min(numbers, parameters)
            source = buffers[place]
            place = (place + 1) % len(buffers)
            buffers[place][:size].copy_(source[:size])
            numbers -= size

    return Contender(
        lambda: move(ASCENT_BYTES[method] * parameters // 8),
        lambda: move(RESTORE_BYTES * parameters // 8),
    )


def same_pattern(method: str, parameters: int) -> Contender:
    """The bytes of a method as it reads and writes them."""
    w, g, kept, *m = (torch.ones(parameters) for _ in range(HELD[method]))

    def ascend() -> None:
        if m:
            torch.dot(g, m[0])  # 8 bytes read
            m[0].neg_()  # 4 read, 4 written
        elif method == "ASAM":
            torch.dot(g, w)  # 8 bytes read
            g.fill_(1.0)  # 4 written
        else:
            g.sum()  # 4 read
        g.sum()  # 4 read
        kept.fill_(1.0)  # 4 written
        w.neg_()  # 4 read, 4 written

    return Contender(ascend, lambda: w.copy_(kept))
