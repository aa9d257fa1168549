"""Hugging Face `Trainer`: sharpness-aware training by a method's name.

Needs `pip install ".[hf]"`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab.config.methods import METHODS, SETTINGS, build, complete, find
from friendly_sam.optimizer import SharpnessAware
from friendly_sam.policies import Every

try:
    from transformers import Trainer
except ImportError as error:
    raise ImportError(
        "friendly_sam.integrations.transformers needs transformers and accelerate: "
        f"{how_to_install('hf')}"
    ) from error

__all__ = ["SharpnessAwareTrainer"]


class SharpnessAwareTrainer(Trainer):
    """`Trainer` with the optimizer it would have made as the base of a sharpness-aware one.

    Both gradients are those of the whole accumulated batch; `max_grad_norm` clips the descent
    gradient only (the logged `grad_norm` is its norm); the logged loss is the one at w; a
    checkpoint holds the EMA, so resuming is exact. In front of another subclass it is
    a mix-in: `class Mine(SharpnessAwareTrainer, Seq2SeqTrainer)`.

    Args:
        args: those of `Trainer`.
        method: a method by its name on the command line ("fsam", "sam", "asam", ...; `fsam list
            methods` has them with their settings) or by its label ("F-SAM", ...); or a function of
            the base optimizer and the model that returns a `SharpnessAware` optimizer.
        every: perturb on every k-th step only (by default the method's own period).
        kwargs: settings of the method by name (`rho`, `sigma`, `decay`, ...; by default the
            method's own), and the arguments of `Trainer`.

    Example:
        >>> from friendly_sam.integrations.transformers import SharpnessAwareTrainer
        >>> trainer = SharpnessAwareTrainer(            # doctest: +SKIP
        ...     model=model, args=args, train_dataset=data, method="fsam", rho=0.05)
        >>> trainer.train()                             # doctest: +SKIP
    """

    optimizer: Any
    _perturbed_loss: Tensor | float = 0.0

    def __init__(
        self,
        *args: Any,
        method: str | Callable[[Optimizer, nn.Module], SharpnessAware] = "fsam",
        every: int | None = None,
        **kwargs: Any,
    ) -> None:
        given = {name: kwargs.pop(name) for name in SETTINGS if name in kwargs}
        given = {name: value for name, value in given.items() if value is not None}
        self._micro_batches: list[tuple[Any, Any]] = []
        self._method = method
        self._when = None if every is None else _every(every)
        if isinstance(method, str):
            self._method = find(method, [n for n, m in METHODS.items() if m.self_contained])
            self._settings = complete(self._method, given)
            self._try_settings()
        elif not callable(method):
            raise TypeError(f"method must be a name or a function, not {method!r}")
        elif given or every is not None:
            names = ", ".join([*given, *(["every"] if every is not None else [])])
            raise ValueError(f"{names} cannot be combined with a function: it sets them itself")
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
        """`Trainer.training_step` at w and, after a step's last micro-batch, all at w + ε.

        Without an ascent pass all micro-batches of a step are computed at its last one, which
        returns the loss of them all.
        """
        optimizer = _unwrapped(self.optimizer)
        if not isinstance(optimizer, SharpnessAware):
            loss: Tensor = super().training_step(model, inputs, *args, **kwargs)
            return loss
        one_pass = optimizer.direction.starts_from != "gradient" and optimizer.ascent_due
        self._micro_batches.append((inputs, (args, kwargs)))
        if one_pass:
            loss = torch.zeros((), device=self.args.device)
        else:
            loss = super().training_step(model, inputs, *args, **kwargs)
        if not self.accelerator.sync_gradients:
            return loss
        batches, self._micro_batches = self._micro_batches, []
        if not optimizer.ascent_due:
            optimizer.skip(scaler=self.accelerator.scaler)  # before the Trainer clips
            return loss
        self._perturbed_loss = torch.zeros((), device=self.args.device)
        with optimizer.perturbed(scaler=self.accelerator.scaler):
            for number, (again, (args, kwargs)) in enumerate(batches, 1):
                last = number == len(batches)
                with nullcontext() if last else self.accelerator.no_sync(model):
                    found = super().training_step(model, again, *args, **kwargs)
                    self._perturbed_loss += found
                    loss = loss + found if one_pass else loss
        return loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """`Trainer.log`, with the norm of the last perturbation and the loss at w + ε."""
        last = getattr(_unwrapped(self.optimizer), "last", None)
        if last is not None and last.ascended and "loss" in logs:
            logs["perturbation_norm"] = last.perturbation_norm
            logs["perturbed_loss"] = float(self._perturbed_loss)
        super().log(logs, *args, **kwargs)

    def _try_settings(self) -> None:
        """Refuse a bad setting now, before the data and the model are looked at."""
        some = nn.Linear(1, 1)
        self._wrap(torch.optim.SGD(some.parameters(), lr=0.1, momentum=0.9), some)

    def _wrap(self, base: Optimizer, model: nn.Module) -> SharpnessAware:
        if isinstance(self._method, str):
            return build(base, self._method, self._settings, when=self._when, model=model)
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


def _every(period: int) -> Every:
    try:
        return Every(period)
    except (TypeError, ValueError) as error:
        raise type(error)(f"every must be an integer >= 1, not {period!r}") from error


def _unwrapped(optimizer: Any) -> Any:
    """What Accelerate's wrapper, if any, is about."""
    return getattr(optimizer, "optimizer", optimizer)
