"""The formula: ε = ρ T² d / ||T d||, from gradients to weights at w + ε."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf as INFINITY

import torch
from torch import Tensor

from friendly_sam._machinery.blocks import Block, Shards
from friendly_sam._machinery.reductions import inner_product, squared_norm, total
from friendly_sam._machinery.tensors import Everywhere, Scalar, Tensors
from friendly_sam.directions import Direction
from friendly_sam.geometries import Euclidean, Geometry

ROUNDING = 2
"""A difference d with ||d|| <= 2 eps(dtype) ||g|| is rounding noise and counts as zero."""

Moved = list[tuple[Tensors, Tensors]]
"""Weights that may be at w + ε, and w."""


class Outcome:
    """What an ascent came to; on an accelerator the tensors stay there until somebody looks."""

    moved = False
    """Whether weights were moved, by an ε that may be zero where the device decides."""
    finite = True
    """Whether everything was finite, where the host has looked."""
    squares: tuple[Tensor, Tensor] | None = None
    """||T d||² and ∑ ρ² ||T² d||², of which ||ε||² is the quotient."""
    skip: Tensor | None = None
    """1 where nothing may be moved, decided on the device."""
    gate: Everywhere | None = None
    """1 where a gradient was not finite, decided on the device: the EMA stays as it is."""

    @property
    def norm(self) -> float:
        """||ε||, after a look at the device."""
        if not self.moved or self.squares is None or (self.skip is not None and self.skip.item()):
            return 0.0
        vv, uu = self.squares
        return float((uu / vv).sqrt())

    @property
    def not_finite(self) -> Tensor | None:
        """1 where something was not finite, decided on the device; None if the host has looked."""
        if self.skip is None or self.squares is None:
            return None
        return (~(self.squares[0] + self.squares[1] < INFINITY)).to(torch.float32)


def perturb(
    blocks: Sequence[Block],
    direction: Direction,
    geometry: Geometry,
    *,
    moved: Moved,
    sharding: Sequence[Shards] = (),
    device: torch.device | None = None,
) -> Outcome:
    """Move the weights of `blocks` to w + ε, with w kept in their backups.

        d = direction(g, m)                   which way
        ε = ρ T² d / ||T d||                  norm over all parameters together

    A zero direction moves nothing. If a gradient is not finite, nothing is touched, the EMA
    included; if d or T is not finite, the weights are not. On a CPU the host looks and stops; on
    an accelerator nobody looks, and the kernels skip.

    Args:
        blocks: what is perturbed.
        direction: gives d.
        geometry: gives T.
        moved: takes weights and their backups as soon as they may have moved.
        sharding: every way of sharding among the parameters (see `total`).
        device: where a process that has no block takes part in the sums.
    """
    outcome = Outcome()
    looks = not any(kind != "cpu" for kind in _kinds(blocks, device))
    euclidean = isinstance(geometry, Euclidean)
    gate, noise = Everywhere(), None
    if direction.keeps_ema or direction.cancels:
        gg, *others = total(
            blocks, _gradient_sums(direction), _columns(direction), sharding, device
        )
        finite = sum(others, gg) < INFINITY
        if looks and not finite:
            outcome.finite = False
            return outcome
        noise = others.pop() if direction.cancels else None
        skip = None if looks else (~finite).to(torch.float32)
        gate = outcome.gate = Everywhere(skip, *((gg, *others) if others else ()))

    directions: dict[int, Tensors] = {}

    def turn(block: Block) -> tuple[Scalar, ...]:
        """Make d, and T² d of it; return ||d||², ||T d||² and ρ² ||T² d||²."""
        g = block.g.clone() if direction.overwrites and not block.owned else block.g
        owned = block.owned or direction.overwrites
        scratch = [block.b] if block.b and not looks else []
        stretch = None if euclidean or not block.scaled else _stretch(geometry, block, scratch)
        skip, *products = gate.on(block.w.device) or (None,)
        block.m.skip, block.m.scratch = skip, scratch
        d = direction(g, block.m, block.updates, tuple(products) if products else None)
        dd = squared_norm(d) if stretch is None or direction.cancels else None
        if stretch is None:
            directions[id(block)] = d
            assert dd is not None
            return dd, dd, dd * block.rho**2
        if d is not g and owned and not block.narrow:
            d = g.copy_(d)  # which is the EMA, and stays as it is
        v = d.to(block.wide)
        v = v.mul_(stretch) if v is not d or (d is g and owned) else v.mul(stretch)
        vv = squared_norm(v)
        u = v.mul_(stretch)
        uu = squared_norm(u) * block.rho**2
        if block.narrow:  # T² d may not fit: it is made again where that can be done
            again = geometry.of_weights or not direction.overwrites
            directions[id(block)] = d if again else g.copy_(u)
            block.scaled = again
        else:
            directions[id(block)] = u
        return (vv if dd is None else dd), vv, uu

    dd, vv, uu = total(blocks, turn, 3, sharding, device)
    known = (vv > _smallest(blocks)) & (vv + uu < INFINITY)
    if noise is not None:
        known = known & (dd > noise)
    if looks and not known:
        outcome.finite = bool(vv + uu < INFINITY)
        return outcome
    outcome.moved, outcome.squares = True, (vv, uu)
    outcome.skip = None if looks else (~known).to(torch.float32)
    scale = Everywhere(vv.rsqrt().item() if looks else vv.rsqrt(), outcome.skip)
    for block in reversed(blocks):  # what the last pass came to last may still be in the cache
        if block.rho != 0:
            u = directions.pop(id(block))
            if block.narrow and block.scaled and not euclidean:
                stretch = _stretch(geometry, block, [])
                u = u if stretch is None else u.to(block.wide).mul_(stretch).mul_(stretch)
            block.b.copy_(block.w)
            moved.append((block.w, block.b))
            inverse, skip = scale.on(block.w.device)
            block.w.add_scaled_(u, inverse * block.rho, skip)
    return outcome


def _kinds(blocks: Sequence[Block], device: torch.device | None) -> set[str]:
    kinds = {block.w.device.type for block in blocks}
    return kinds or {"cpu" if device is None else device.type}


def _columns(direction: Direction) -> int:
    return 1 + 2 * direction.needs_products + direction.cancels


def _gradient_sums(direction: Direction) -> Callable[[Block], list[Scalar]]:
    """From a block ||g||², what the direction needs of <g,m> and ||m||², and what is rounding."""

    def sums(block: Block) -> list[Scalar]:
        found = [squared_norm(block.g)]
        if direction.needs_products:
            found += [inner_product(block.g, block.m, block.b), squared_norm(block.m)]
        if direction.cancels:
            coarsest = max(torch.finfo(x.dtype).eps for x in (block.w, block.g, block.m) if x)
            found.append(found[0] * (ROUNDING * coarsest) ** 2)
        return found

    return sums


def _stretch(geometry: Geometry, block: Block, scratch: list[Tensors]) -> Tensors | None:
    """Return T; on an accelerator in the memory that w is kept in later."""
    w, g = Tensors(block.w.to(block.wide)), Tensors(block.g.to(block.wide))
    w.scratch = g.scratch = [] if block.narrow else scratch
    return geometry(w, g)


def _smallest(blocks: Sequence[Block]) -> float:
    """Return a ||T d||² whose inverse root is not yet infinite in the dtype of some weight."""
    tiny = max((torch.finfo(block.wide).tiny for block in blocks), default=0.0)
    return float(tiny) ** 2
