"""PyTorch Lightning: a mix-in that makes automatic optimization take both passes itself.

The wrapper works in Lightning as it is: return it from `configure_optimizers`. Lightning hands
`step` a closure, which is called at w and at w + ε. What goes wrong then is what Lightning does
inside that closure: it clips (so the ascent gradient and the EMA are clipped too), it
has the last micro-batch only (`accumulate_grad_batches`), it logs twice (and the loss at w + ε
wins), and in fp16 it calls `step()` bare. With the mix-in all four are right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from friendly_sam.optimizer import SharpnessAware

__all__ = ["SharpnessAwareMixin"]

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule as _Module
else:
    _Module = object  # works with lightning.pytorch and with pytorch_lightning

UNSUPPORTED = {
    "DeepSpeedStrategy": "it takes gradients, accumulation and the step into its own hands",
    "FSDPStrategy": "its flat shards hide the parameters; ModelParallelStrategy (FSDP2) does not",
    "XLAStrategy": "it has never been tried",
}


class SharpnessAwareMixin(_Module):
    """Put it before `LightningModule`, and return a `SharpnessAware` optimizer.

    Both gradients are those of the whole accumulated batch; clipping and
    `on_before_optimizer_step` see the descent gradient, once, with the weights at w; `self.log`,
    torchmetrics and the loss that callbacks get are those at w. Guard anything else in
    `training_step` that should happen once a step with `if not self.second_pass:`.

    `on_fit_start`, `on_train_batch_start`, `optimizer_step` and `log` must call `super()` where
    a subclass overrides them.

    Example:
        >>> import torch
        >>> from lightning.pytorch import LightningModule
        >>> from friendly_sam import FriendlySAM
        >>> from friendly_sam.integrations.lightning import SharpnessAwareMixin
        >>> class Classifier(SharpnessAwareMixin, LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.net = torch.nn.Linear(64, 10)
        ...     def training_step(self, batch, batch_idx):
        ...         x, y = batch
        ...         loss = torch.nn.functional.cross_entropy(self.net(x), y)
        ...         self.log("loss", loss)
        ...         return loss
        ...     def configure_optimizers(self):
        ...         base = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        ...         return FriendlySAM(base, rho=0.1, model=self)
    """

    second_pass: bool = False
    """Whether `training_step` is running at w + ε."""
    _micro_batches: list[tuple[Any, int]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a class in which `LightningModule` stands first: its methods would win."""
        super().__init_subclass__(**kwargs)
        before = cls.__mro__[: cls.__mro__.index(SharpnessAwareMixin)]
        if any(kind.__name__ == "LightningModule" for kind in before):
            raise TypeError(
                f"SharpnessAwareMixin must stand before LightningModule: "
                f"class {cls.__name__}(SharpnessAwareMixin, LightningModule)"
            )

    def on_fit_start(self) -> None:
        """Refuse what cannot be made to work, before any training."""
        super().on_fit_start()
        for optimizer in self.trainer.optimizers:
            if isinstance(optimizer, SharpnessAware):
                self._check(optimizer)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Keep the micro-batch: the second pass needs all that the step is made of."""
        if batch_idx % self.trainer.accumulate_grad_batches == 0:
            self._micro_batches = []
        self._micro_batches.append((batch, batch_idx))
        response: int | None = super().on_train_batch_start(batch, batch_idx)
        return response

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Take both passes, then let Lightning unscale, clip and step once."""
        sharp = getattr(optimizer, "optimizer", optimizer)
        if not isinstance(sharp, SharpnessAware) or optimizer_closure is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
            return

        def both_passes() -> Any:
            scaler = getattr(self.trainer.precision_plugin, "scaler", None)
            due = sharp.ascent_due
            if due and sharp.direction.starts_from != "gradient":  # one pass, at w + ε
                with sharp.perturbed(scaler=scaler):
                    return optimizer_closure()
            with self._unsynchronised(due and not sharp.sync_ascent):
                loss = optimizer_closure()
            if loss is not None and sharp.ascent_due:
                with sharp.perturbed(scaler=scaler), self._second_pass():
                    self._backward_again(sharp)
            elif loss is not None:
                sharp.skip(scaler=scaler)  # before Lightning clips
            self._micro_batches = []
            return loss

        descent: Any = _AfterBothPasses(sharp)
        self.trainer.strategy.optimizer_step(descent, both_passes)

    def log(self, *args: Any, **kwargs: Any) -> None:
        """`LightningModule.log`, at w only."""
        if not self.second_pass:
            super().log(*args, **kwargs)

    def _backward_again(self, optimizer: SharpnessAware) -> None:
        """The gradient of the whole accumulated batch, in the way Lightning takes it."""
        trainer = self.trainer
        last = len(self._micro_batches) - 1
        takes_index = len(inspect.signature(self.training_step).parameters) > 1
        for number, (batch, batch_idx) in enumerate(self._micro_batches):
            with self._unsynchronised(number < last):
                inputs = (batch, batch_idx) if takes_index else (batch,)
                output: Any = trainer.strategy.training_step(*inputs)
                loss = output["loss"] if isinstance(output, Mapping) else output
                trainer.strategy.backward(loss / trainer.accumulate_grad_batches, optimizer)

    @contextmanager
    def _unsynchronised(self, block: bool) -> Iterator[None]:
        no_sync = getattr(self.trainer.strategy.model, "no_sync", None)
        with ExitStack() as stack:
            if block and no_sync is not None:
                stack.enter_context(no_sync())
            yield

    @contextmanager
    def _second_pass(self) -> Iterator[None]:
        self.second_pass = True
        try:
            with _metrics_as_they_are(self):
                yield
        finally:
            self.second_pass = False

    def _check(self, optimizer: SharpnessAware) -> None:
        strategy = self.trainer.strategy
        for kind in type(strategy).__mro__:
            if kind.__name__ in UNSUPPORTED:
                raise ValueError(
                    f"{type(optimizer).__name__} does not work with {type(strategy).__name__}: "
                    f"{UNSUPPORTED[kind.__name__]}. Use strategy='ddp', or a loop of your own "
                    "(examples/fsdp2.py)."
                )
        if not self.automatic_optimization:
            return
        accumulates = self.trainer.accumulate_grad_batches > 1
        if accumulates and optimizer.direction.starts_from != "gradient":
            raise ValueError(
                f"{optimizer.direction!r} does not work with accumulate_grad_batches > 1: "
                "Lightning computes all micro-batches but the last at w. Use a direction with an "
                "ascent pass."
            )
        if optimizer.replay_rng:
            raise ValueError(
                "replay_rng=True does not work with SharpnessAwareMixin: by the time of the "
                "second pass the random numbers of the first micro-batch are gone. Leave the "
                "mix-in away, or call optimizer.step(closure) under manual optimization "
                "(ManualClassifier in examples/lightning_module.py)."
            )
        if "dataloader_iter" in inspect.signature(self.training_step).parameters:
            raise ValueError(
                "training_step(dataloader_iter) does not work with SharpnessAwareMixin: the "
                "second pass needs the same batch again. Take (batch, batch_idx), or call "
                "optimizer.step(closure) under manual optimization (ManualClassifier in "
                "examples/lightning_module.py)."
            )


class _AfterBothPasses:
    """The optimizer as a precision plug-in sees it: the closure does both passes, `step` one step.

    Everything else is the optimizer's own, its class included.
    """

    def __init__(self, optimizer: SharpnessAware) -> None:
        self._optimizer = optimizer

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._optimizer)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        self._optimizer.step()
        return loss

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


@contextmanager
def _metrics_as_they_are(module: Any) -> Iterator[None]:
    """Inside, torchmetrics of `module` take nothing in and answer what they last answered."""
    from torchmetrics import Metric  # Lightning needs it, so it is there

    metrics = [each for each in module.modules() if isinstance(each, Metric)]
    updates = [metric.__dict__["update"] for metric in metrics]
    for metric in metrics:
        metric.__dict__["update"] = lambda *_, **__: None
        metric.__dict__["forward"] = lambda *_, metric=metric, **__: metric._forward_cache
    try:
        yield
    finally:
        for metric, update in zip(metrics, updates, strict=True):
            metric.__dict__["update"] = update
            del metric.__dict__["forward"]
