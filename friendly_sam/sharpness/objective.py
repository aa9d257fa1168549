"""The loss over a data set as a function of the weights: value, gradient, Hessian products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from friendly_sam.sharpness.modes import Mode, check_mode, describe_mode, in_mode
from friendly_sam.sharpness.vectors import flatten, moved, unflatten, wide_dtype

BatchLoss = Callable[[nn.Module, Any], Tensor]
"""From a model and a batch to the mean loss of the batch."""


class NotDeterministicError(ValueError):
    """Two evaluations at the same weights gave different results."""


class Objective:
    """L(w) = (1/N) Σ_i loss(model(x_i; w), y_i), over fixed data, as a function of the weights.

    Batches are gone through one at a time and weighted by their sizes, so memory is that of one
    batch, and the result does not depend on how the data is cut (but for BatchNorm in mode
    `"batch"`). Weights, gradients, layer modes and running statistics are left as they were.

    Args:
        model: any module, on any device.
        loss: (outputs, targets) to the mean loss of a batch, such as `F.cross_entropy`.
        data: batches whose first two entries are inputs and targets; it is gone through many
            times, so a list or a DataLoader, not a generator. Tensors are moved to the device
            of the weights.
        parameters: the weights that count (default: all that require a gradient).
        mode: how BatchNorm and dropout behave, see `friendly_sam.sharpness.modes.Mode`.
        batch_loss: (model, batch) to the mean loss, for batches of any other form; `loss` is
            then None.
        batch_size: the number of samples of a batch (default: the length of its first tensor).
        check: compare two evaluations first and refuse a loss that changes between calls.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import Objective
        >>> model = torch.nn.Linear(3, 2)
        >>> data = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(2)]
        >>> objective = Objective(model, torch.nn.functional.cross_entropy, data)
        >>> objective.dimension, objective.samples
        (8, 16)
        >>> objective.gradient().shape
        torch.Size([8])
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], Tensor] | None,
        data: Iterable[Any],
        *,
        parameters: Iterable[Tensor] | None = None,
        mode: Mode = "evaluation",
        batch_loss: BatchLoss | None = None,
        batch_size: Callable[[Any], int] | None = None,
        check: bool = True,
    ) -> None:
        if (loss is None) == (batch_loss is None):
            raise ValueError("give either loss or batch_loss")
        check_mode(mode)
        if iter(data) is data:
            raise TypeError(
                "data must give its batches again each time it is gone through, which a "
                f"{type(data).__name__} does not: pass list(data), or a DataLoader"
            )
        self.model, self.data, self.mode = model, data, mode
        chosen = model.parameters() if parameters is None else parameters
        self.parameters = [parameter for parameter in chosen if parameter.requires_grad]
        if not self.parameters:
            raise ValueError("parameters must hold at least one that requires a gradient")
        if any(parameter.is_complex() for parameter in self.parameters):
            raise TypeError("parameters must be real, but some are complex")
        self.device = self.parameters[0].device
        self.dtype = wide_dtype(self.parameters)
        self.dimension = sum(parameter.numel() for parameter in self.parameters)
        self._loss, self._batch_loss, self._size = loss, batch_loss, batch_size or first_length
        self.samples = sum(self._size(batch) for batch in data)
        if self.samples < 1:
            raise ValueError("data must hold at least one sample, but is empty")
        self.passes = 0
        """How many times a batch has gone through the model."""
        if check:
            self.check_deterministic()

    @property
    def normalisation(self) -> str:
        """What BatchNorm does, in words."""
        return describe_mode(self.model, self.mode)

    def weights(self) -> Tensor:
        """A copy of w as one vector."""
        return flatten(self.parameters, self.dtype, self.device)

    def random_vector(self, generator: torch.Generator) -> Tensor:
        """A standard Gaussian vector; drawn on the CPU, so that it is the same on every device."""
        noise = torch.randn(self.dimension, dtype=torch.float64, generator=generator)
        return noise.to(self.device, self.dtype)

    def over(self, data: Iterable[Any]) -> Objective:
        """The same loss of the same weights over other data; it is not checked again."""
        return Objective(
            self.model,
            self._loss,
            data,
            parameters=self.parameters,
            mode=self.mode,
            batch_loss=self._batch_loss,
            batch_size=self._size,
            check=False,
        )

    # -- value, gradient, Hessian -----------------------------------------------------------

    def loss(self, at: Tensor | None = None) -> float:
        """L(w), or L(w + `at`) for an offset given as a vector."""
        total = torch.zeros((), dtype=torch.float64)
        with torch.no_grad(), moved(self.parameters, at), in_mode(self.model, self.mode):
            for batch, share in self._batches():
                total += share * self._value(batch).detach().double().cpu()
        return float(total)

    def gradient(self, at: Tensor | None = None) -> Tensor:
        """∇L(w), or ∇L(w + `at`), as one vector."""
        return self.loss_and_gradient(at)[1]

    def loss_and_gradient(self, at: Tensor | None = None) -> tuple[float, Tensor]:
        """L and ∇L in one pass."""
        value, total = 0.0, torch.zeros(self.dimension, dtype=self.dtype, device=self.device)
        with moved(self.parameters, at), in_mode(self.model, self.mode):
            for batch, share in self._batches():
                loss, gradient = self._differentiate(batch)
                value += share * loss
                total.add_(gradient, alpha=share)
        return value, total

    def batch_gradient(self, batch: Any, at: Tensor | None = None) -> Tensor:
        """∇L_B(w) of one batch, or ∇L_B(w + `at`), as one vector."""
        with moved(self.parameters, at), in_mode(self.model, self.mode):
            return self._differentiate(self._here(batch))[1]

    def hessian_product(self, vector: Tensor) -> Tensor:
        """∇²L(w) v, by differentiating <∇L(w), v> (Pearlmutter, 1994)."""
        pieces = unflatten(vector, self.parameters)
        total = torch.zeros(self.dimension, dtype=self.dtype, device=self.device)
        with torch.enable_grad(), in_mode(self.model, self.mode):
            for batch, share in self._batches():
                first = torch.autograd.grad(
                    self._value(batch), self.parameters, create_graph=True, allow_unused=True
                )
                # A gradient that does not depend on the weights adds nothing.
                curved = [
                    (gradient, piece)
                    for gradient, piece in zip(first, pieces, strict=True)
                    if gradient is not None and gradient.requires_grad
                ]
                if not curved:
                    continue
                gradients, along = zip(*curved, strict=True)
                second = torch.autograd.grad(
                    gradients, self.parameters, grad_outputs=along, allow_unused=True
                )
                total.add_(self._join(second), alpha=share)
        return total

    # -- the check --------------------------------------------------------------------------

    def check_deterministic(self) -> None:
        """Refuse a model or data that change between calls: a spectrum of them means nothing.

        Loss and gradient are computed twice; they may differ by rounding, √eps of the dtype.

        Raises:
            NotDeterministicError: they differ by more.
        """
        tolerance = math.sqrt(max(torch.finfo(p.dtype).eps for p in self.parameters))
        scale = 0.0
        with in_mode(self.model, self.mode):
            value, gradient = 0.0, torch.zeros_like(self.weights())
            for batch, share in self._batches():
                loss, own = self._differentiate(batch)
                value += share * loss
                gradient.add_(own, alpha=share)
                scale += share * float(own.norm())
        again, other = self.loss_and_gradient()
        if not (math.isfinite(value) and bool(gradient.isfinite().all())):
            raise ValueError(f"the loss or its gradient is not finite at these weights ({value})")
        apart = float((gradient - other).norm())
        if abs(value - again) > tolerance * max(abs(value), 1e-12) or apart > tolerance * scale:
            raise NotDeterministicError(
                f"two evaluations at the same weights differ (loss {value:.6g} and {again:.6g}, "
                f"gradients apart by {apart:.3g}): put dropout into evaluation mode "
                '(mode="evaluation") and give fixed data (no random augmentation, no shuffling '
                'with mode="batch")'
            )

    # -- how it is done ---------------------------------------------------------------------

    def _batches(self) -> Iterator[tuple[Any, float]]:
        for batch in self.data:
            size = self._size(batch)
            if size:
                self.passes += 1
                yield self._here(batch), size / self.samples

    def _here(self, batch: Any) -> Any:
        if isinstance(batch, Tensor):
            return batch.to(self.device, non_blocking=True)
        if isinstance(batch, Mapping):
            return {key: self._here(value) for key, value in batch.items()}
        if isinstance(batch, (list, tuple)):
            return [self._here(value) for value in batch]
        return batch

    def _value(self, batch: Any) -> Tensor:
        if self._batch_loss is not None:
            value = self._batch_loss(self.model, batch)
        elif self._loss is not None:
            value = self._loss(self.model(batch[0]), batch[1])
        if value.numel() != 1:
            raise ValueError(
                f"the loss of a batch must be one number (its mean), not of shape "
                f"{tuple(value.shape)}"
            )
        return value

    def _differentiate(self, batch: Any) -> tuple[float, Tensor]:
        with torch.enable_grad():
            value = self._value(batch)
            gradients = torch.autograd.grad(value, self.parameters, allow_unused=True)
        return float(value.detach()), self._join(gradients)

    def _join(self, gradients: Sequence[Tensor | None]) -> Tensor:
        filled = [
            torch.zeros_like(parameter) if gradient is None else gradient
            for gradient, parameter in zip(gradients, self.parameters, strict=True)
        ]
        return flatten(filled, self.dtype, self.device)


def first_length(batch: Any) -> int:
    """The length of the first tensor in a batch."""
    if isinstance(batch, Tensor):
        return len(batch)
    values = batch.values() if isinstance(batch, Mapping) else batch
    for value in values:
        if isinstance(value, Tensor) and value.ndim > 0:
            return len(value)
    raise TypeError(f"batch_size must be given: a batch of type {type(batch).__name__} has none")
