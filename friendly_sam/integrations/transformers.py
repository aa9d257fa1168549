"""Hugging Face `Trainer`: sharpness-aware training by a method's name.

Needs `pip install "friendly-sam[hf]"`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from friendly_sam.geometries import DiagonalFisher, ParameterScaled
from friendly_sam.optimizer import SharpnessAware
from friendly_sam.recipes import ASAM, SAM, FisherSAM, FriendlySAM

try:
    from transformers import Trainer
except ImportError as error:
    raise ImportError(
        "friendly_sam.integrations.transformers needs transformers and accelerate: "
        'pip install "friendly-sam[hf]"'
    ) from error

__all__ = ["METHODS", "SharpnessAwareTrainer"]

METHODS: dict[str, Callable[..., SharpnessAware]] = {
    "SAM": SAM,
    "ASAM": ASAM,
    "FisherSAM": FisherSAM,
    "F-SAM": FriendlySAM,
    "F-ASAM": lambda base, rho=0.5, **o: FriendlySAM(base, rho, geometry=ParameterScaled(), **o),
    "F-FisherSAM": lambda base, rho=0.1, **o: FriendlySAM(
        base, rho, geometry=DiagonalFisher(), **o
    ),
}
"""The methods by name, each a function of the base optimizer."""


class SharpnessAwareTrainer(Trainer):
    """`Trainer` with the optimizer it would have made as the base of a sharpness-aware one.

    Both gradients are those of the whole accumulated batch; `max_grad_norm` clips the descent
    gradient only (the logged `grad_norm` is its norm); the logged loss is the one at w; a
    checkpoint holds the moving average, so resuming is exact. In front of another subclass it is
    a mix-in: `class Mine(SharpnessAwareTrainer, Seq2SeqTrainer)`.

    Args:
        args: those of `Trainer`.
        method: a name in `METHODS`, or a function of the base optimizer and the model that gives
            a `SharpnessAware` optimizer, for everything the names do not reach.
        rho: the radius; by default the method's own.
        sigma: σ of the F- methods (by default 1).
        decay: λ of the F- methods (by default 0.9).
        every: ascend on every k-th step only.
        kwargs: those of `Trainer`.

    Example:
        >>> from friendly_sam.integrations.transformers import SharpnessAwareTrainer
        >>> trainer = SharpnessAwareTrainer(            # doctest: +SKIP
        ...     model=model, args=args, train_dataset=data, method="F-SAM", rho=0.05)
        >>> trainer.train()                             # doctest: +SKIP
    """

    optimizer: Any

    def __init__(
        self,
        *args: Any,
        method: str | Callable[[Optimizer, nn.Module], SharpnessAware] = "F-SAM",
        rho: float | None = None,
        sigma: float | Literal["projection"] | None = None,
        decay: float | None = None,
        every: int = 1,
        **kwargs: Any,
    ) -> None:
        given = {"rho": rho, "sigma": sigma, "decay": decay}
        self._settings = {name: value for name, value in given.items() if value is not None}
        self._settings["every"] = every
        self._method = method
        self._micro_batches: list[tuple[Any, Any]] = []
        if isinstance(method, str):
            if method not in METHODS:
                raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
            if not method.startswith("F-") and not {"sigma", "decay"}.isdisjoint(self._settings):
                raise ValueError(f"sigma and decay belong to the F- methods, not to {method}")
        elif not callable(method):
            raise TypeError(f"method must be a name or a function, not {method!r}")
        elif len(self._settings) > 1 or every != 1:
            raise ValueError("rho, sigma, decay and every go with a method's name, not a function")
        super().__init__(*args, **kwargs)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Optimizer:
        """Wrap the optimizer that `Trainer` makes, or was given."""
        super().create_optimizer(*args, **kwargs)
        self._check()
        self._micro_batches = []
        if not isinstance(_unwrapped(self.optimizer), SharpnessAware):
            given = kwargs.get("model", args[0] if args else None)
            model: Any = self.model if given is None else given
            self.optimizer = self._wrap(self.optimizer, model)
        optimizer: Optimizer = self.optimizer
        return optimizer

    def training_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """`Trainer.training_step` at w and, after a step's last micro-batch, all at w + ε."""
        loss: Tensor = super().training_step(model, inputs, *args, **kwargs)
        optimizer = _unwrapped(self.optimizer)
        if not isinstance(optimizer, SharpnessAware) or not optimizer.ascent_due:
            return loss
        self._micro_batches.append((inputs, (args, kwargs)))
        if self.accelerator.sync_gradients:
            batches, self._micro_batches = self._micro_batches, []
            with optimizer.perturbed(scaler=self.accelerator.scaler):
                for number, (again, (args, kwargs)) in enumerate(batches, 1):
                    last = number == len(batches)
                    with nullcontext() if last else self.accelerator.no_sync(model):
                        super().training_step(model, again, *args, **kwargs)
        return loss

    def _wrap(self, base: Optimizer, model: nn.Module) -> SharpnessAware:
        if isinstance(self._method, str):
            return METHODS[self._method](base, model=model, **self._settings)
        optimizer = self._method(base, model)
        if not isinstance(optimizer, SharpnessAware):
            raise TypeError(f"method gave a {type(optimizer).__name__}, not a SharpnessAware")
        return optimizer

    def _check(self) -> None:
        if self.is_deepspeed_enabled:
            raise ValueError(
                "DeepSpeed takes gradients and the step into its own hands, so there is no second "
                "gradient to step with: use DDP (torchrun) or FSDP2"
            )
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        if self.is_fsdp_enabled and getattr(plugin, "fsdp_version", 1) != 2:
            raise ValueError(
                "FSDP 1 hides the parameters in flat shards, whose norm is not that of the whole: "
                "use FSDP2 (fsdp_version 2) or DDP"
            )


def _unwrapped(optimizer: Any) -> Any:
    """What Accelerate's wrapper, if any, is about."""
    return getattr(optimizer, "optimizer", optimizer)
