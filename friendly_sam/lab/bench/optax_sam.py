"""optax's SAM in jax, where both are installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Size

from friendly_sam.lab.bench.peers import RHO, optional


class OptaxSAM:
    """Two calls of `update` and `apply_updates`, compiled, with buffers given away.

    optax works out both the ascent and the outer step in each call and picks one, so the base
    update cannot be left out; `base` is what to subtract.
    """

    def __init__(self, sizes: Sequence[Size]) -> None:
        jax, optax, contrib = (optional(n) for n in ("jax", "optax", "optax.contrib"))
        ascent = optax.chain(contrib.normalize(), optax.sgd(RHO))
        self.step = self._compiled(jax, optax, contrib.sam(optax.sgd(0.1), ascent, sync_period=2))
        self.base_step = self._compiled(jax, optax, optax.sgd(0.1))
        keys = jax.random.split(jax.random.key(0), len(sizes))
        shapes = [tuple(size) for size in sizes]
        pairs = list(zip(keys, shapes, strict=True))
        self.gradients = [jax.random.normal(key, shape) for key, shape in pairs]
        self.params = [jax.random.normal(key, shape) * 0.01 for key, shape in pairs]
        self.base_params = [p.copy() for p in self.params]
        sam = contrib.sam(optax.sgd(0.1), ascent, sync_period=2)
        # The first cache would be the parameters themselves, which are given away.
        self.state = jax.tree.map(lambda leaf: leaf.copy(), sam.init(self.params))
        self.base_state = optax.sgd(0.1).init(self.base_params)
        self.wait = jax.block_until_ready

    @staticmethod
    def _compiled(jax: Any, optax: Any, transform: Any) -> Callable[..., Any]:
        def step(gradients: Any, state: Any, params: Any) -> Any:
            updates, state = transform.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        compiled: Callable[..., Any] = jax.jit(step, donate_argnums=(1, 2))
        return compiled

    def both(self) -> None:
        """The ascent and the outer step."""
        for _ in range(2):
            self.params, self.state = self.step(self.gradients, self.state, self.params)
        self.wait((self.params, self.state))

    def base(self) -> None:
        """The outer step of plain SGD."""
        self.base_params, self.base_state = self.base_step(
            self.gradients, self.base_state, self.base_params
        )
        self.wait(self.base_params)


def available() -> bool:
    """Whether jax and optax are installed."""
    return optional("jax") is not None and optional("optax") is not None
