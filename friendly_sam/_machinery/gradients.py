"""The gradients of one step: from `.grad` to w + ε, and to what the base optimizer gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from friendly_sam._machinery.blocks import Block, Slot, exclusive, gather, local
from friendly_sam._machinery.groups import MEAN, VARIANCE
from friendly_sam._machinery.memory import COMPONENT, EMA, PREVIOUS
from friendly_sam._machinery.reductions import inner_product, squared_norm, total
from friendly_sam._machinery.scaling import inverse_scale
from friendly_sam._machinery.tensors import Everywhere, Scalar
from friendly_sam._machinery.warn import warn
from friendly_sam.ascent import Moved, Outcome, perturb
from friendly_sam.batchnorm import frozen_statistics
from friendly_sam.geometries import Euclidean

if TYPE_CHECKING:
    from friendly_sam.optimizer import SharpnessAware


class Gradients:
    """What one step of `optimizer` does with its gradients, scaled by `scaler` or not."""

    def __init__(self, optimizer: SharpnessAware, scaler: Any = None) -> None:
        self.optimizer, self.scaler = optimizer, scaler
        self.memory, self.groups = optimizer.memory, optimizer.groups
        self.direction, self.descent = optimizer.direction, optimizer.descent
        self.outcome = Outcome()
        self._at_w: dict[Tensor, Tensor] = {}
        self._references: list[Tensor] = []
        self._warned = False

    def prepare(self) -> None:
        """Take the gradient that a direction refers to, which runs code of the user."""
        reference = self.direction.reference
        if reference is None:
            return
        slots = self._slots("gradient", memory=False)
        gradients = [(parameter, parameter.grad) for parameter in self.groups.parameters()]
        self.optimizer.zero_grad()
        try:
            frozen_statistics(self.optimizer.model).run(torch.enable_grad()(reference))
            self._references = [
                torch.zeros_like(slot.gradient) if slot.parameter.grad is None
                else slot.parameter.grad
                for slot in slots
            ]  # fmt: skip
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient

    def ascend(self, moved: Moved) -> list[tuple[Tensor, Tensor]]:
        """Move the weights to w + ε; return the parameters that did, with their backups."""
        parameters = self.groups.parameters()
        two_passes = self.direction.starts_from == "gradient"
        self._warned = two_passes and bool(parameters) and all(p.grad is None for p in parameters)
        if self._warned:
            self._warn(
                "found no gradient to perturb along, so nothing happens. The closure must call "
                "backward(); with perturbed(), the first backward() comes before."
            )
        slots = self._slots(self.direction.starts_from, backups=True)
        for slot, reference in zip(slots, self._references, strict=False):
            slot.memory = reference
        self._observe()
        if self.descent.needs_gradient:
            self._at_w = {p: p.grad for p in parameters if p.grad is not None}
        inverse = self._inverse_scale() if two_passes else None
        for parameter in parameters:
            parameter.grad = None
        self.memory.forget_all_but(self._kept())
        blocks = gather(
            slots,
            many=not isinstance(self.optimizer.geometry, Euclidean),
            temporaries=self._temporaries(slots),
            ours=two_passes and not self.descent.needs_gradient,
        )
        self._unscale(blocks, inverse)
        self.outcome = perturb(
            blocks,
            self.direction,
            self.optimizer.geometry,
            moved=moved,
            sharding=self.groups.sharding(),
            device=self._device(),
        )
        if self.outcome.finite and self.direction.keeps_ema:
            self.memory.counted((slot.parameter for slot in slots), self.outcome.gate)
        if not self.outcome.moved:
            return []
        return [(s.parameter, s.backup) for s in slots if s.rho != 0 and s.backup is not None]

    def finish(self) -> None:
        """After the way back: u = descent(g, g') in `.grad`, and what later steps need of g'."""
        parameters = self.groups.parameters()
        if not self._warned and parameters and all(p.grad is None for p in parameters):
            self._warn(
                "found no gradient at the perturbed weights: the pass inside perturbed(), or the "
                "closure, must call backward()."
            )
        if self.descent.needs_gradient and self.outcome.finite:
            self._descend()
        self._at_w = {}
        self._remember_gradient()

    def skip(self) -> None:
        """On a step without ascent: the EMA takes in g, and `.grad` becomes u = descent(g)."""
        self._observe()
        if self.direction.keeps_ema:
            slots = self._slots(self.direction.starts_from)
            blocks = gather(slots, temporaries=self.scaler is not None, ours=False)
            inverse = self._inverse_scale() if self.direction.starts_from == "gradient" else None
            self._unscale(blocks, inverse)
            self._update_ema(slots, blocks)
        if self.descent.keeps_component:
            self._descend(skipped=True)
        self._remember_gradient()

    def create_memory(self) -> None:
        """Create the vectors that this method keeps: loading goes into what is there."""
        for parameter, names in self._kept().items():
            if parameter.grad is not None:
                for name in names:
                    self._vector(name, parameter)

    def observed(self) -> tuple[bool, float, float]:
        """What a policy that looks at the gradient decides, and what it remembers then."""
        group, when = self.optimizer.param_groups[0], self.optimizer.when
        mean, variance = group.get(MEAN, -1.0), group.get(VARIANCE, 0.0)
        slots = self._slots("gradient", memory=False)
        if not slots and not self.groups.sharding():
            return True, mean, variance
        blocks = gather(slots, ours=False)
        (squared,) = total(
            blocks, lambda b: (squared_norm(b.g),), 1, self.groups.sharding(), self._device()
        )
        found = squared.item()
        return (
            when.observe(found, mean, variance) if found < float("inf") else (False, mean, variance)
        )

    # -- how it is done ---------------------------------------------------------------------

    def _slots(self, source: str, *, backups: bool = False, memory: bool = True) -> list[Slot]:
        """What takes part: each parameter with a gradient and a radius, and what belongs to it."""
        slots = []
        for group, parameter in self.groups.members():
            rho = self.groups.radius(group)
            gradient = self.source(source, parameter)
            if gradient is None or (rho == 0 and not self.optimizer.counts_radius_0):
                continue
            if gradient.layout != torch.strided:
                raise TypeError(
                    f"a parameter of shape {tuple(parameter.shape)} has a sparse gradient, along "
                    "which it cannot be perturbed: use dense gradients, or put it into a group "
                    f'with "{self.groups.key}": 0.0'
                )
            slot = Slot(parameter, gradient, rho=signed_radius(rho, source, group))
            slot.scaled = self.optimizer.scales(group, parameter)
            slots.append(slot)
        for slot in slots if memory else ():
            if backups:
                slot.backup = self.memory.backup(slot.parameter)
            if self.direction.keeps_ema:
                slot.memory = self._vector(EMA, slot.parameter)
        if memory and self.direction.counts_updates:
            counts = self.memory.counts([slot.parameter for slot in slots])
            for slot, count in zip(slots, counts, strict=True):
                slot.updates = count
        return slots

    def source(self, source: str, parameter: Tensor) -> Tensor | None:
        """Return what the direction starts from: a gradient, or the base's momentum."""
        if source == "gradient":
            return parameter.grad
        if source == "previous":
            return self.memory.tensors(PREVIOUS).get(parameter)
        state = self.optimizer.base.state.get(parameter, {})
        momentum: Tensor | None = state.get("momentum_buffer", state.get("exp_avg"))
        if state and momentum is None and "momentum_buffer" not in state:
            raise ValueError(
                f"base must keep a momentum_buffer or an exp_avg for {self.direction!r}, but this "
                f"{type(self.optimizer.base).__name__} keeps {', '.join(map(str, state))}"
            )
        return momentum

    def _temporaries(self, slots: list[Slot]) -> bool:
        """Whether the formulas take memory that is not there already."""
        narrow = any(slot.gradient.dtype == torch.float16 for slot in slots)
        scratch_is_taken = not isinstance(self.optimizer.geometry, Euclidean)
        needs = self.direction.needs_scratch or narrow
        return self.direction.dtype is not None or (scratch_is_taken and needs)

    def _vector(self, name: str, parameter: Tensor) -> Tensor:
        dtype = self.direction.dtype if name == EMA else None
        return self.memory.tensor(name, parameter, dtype)

    def _kept(self) -> dict[Tensor, tuple[str, ...]]:
        """The vectors that each parameter keeps."""
        own: tuple[str, ...] = (EMA,) if self.direction.keeps_ema else ()
        own += (PREVIOUS,) if self.direction.starts_from == "previous" else ()
        always = (COMPONENT,) if self.descent.keeps_component else ()
        return {
            parameter: always + (own if self.groups.radius(group) > 0 else ())
            for group, parameter in self.groups.members()
        }

    def _inverse_scale(self) -> Tensor | None:
        return inverse_scale(self.scaler, self.optimizer, self._device())

    def _unscale(self, blocks: list[Block], inverse: Tensor | None) -> None:
        if inverse is not None:
            for block in blocks:
                block.g = block.g.mul_(inverse) if block.owned else block.g.mul(inverse)
                block.owned = True

    def _update_ema(self, slots: list[Slot], blocks: list[Block]) -> None:
        sharding, device = self.groups.sharding(), self._device()
        (squared,) = total(blocks, lambda b: (squared_norm(b.g),), 1, sharding, device)
        skip = None
        if squared.device.type != "cpu":
            skip = (~squared.isfinite()).to(torch.float32)
        elif not squared.isfinite():
            return
        gate = Everywhere(skip)
        for block in blocks:
            (block.m.skip,) = gate.on(block.m.device)
            self.direction.update(block.m, block.g, block.updates)
        self.memory.counted((slot.parameter for slot in slots), gate)

    def _descend(self, *, skipped: bool = False) -> None:
        """Overwrite `.grad` with u; items of a block: w is g', or g on a step without ascent."""
        parameters = [
            p for _, p in self.groups.members()
            if p.grad is not None and p.grad.layout == torch.strided
            and (skipped or p in self._at_w)
        ]  # fmt: skip
        alone = exclusive([local(p.grad) for p in parameters if p.grad is not None])
        slots = []
        for parameter, own in zip(parameters, alone, strict=True):
            gradient = parameter.grad
            assert gradient is not None
            if not own or gradient.is_conj() or gradient.is_neg():
                gradient = parameter.grad = gradient.clone().resolve_conj().resolve_neg()
            v = self._vector(COMPONENT, parameter) if self.descent.keeps_component else None
            slot = Slot(gradient, v if skipped else self._at_w[parameter], memory=v)  # type: ignore[arg-type]
            slot.backup = self.memory.backup(parameter)  # memory to work in
            slots.append(slot)
        blocks = gather(slots, ours=False)

        def products(block: Block) -> tuple[Scalar, ...]:
            p, g = block.w, block.g
            return squared_norm(g), inner_product(g, p, block.b), squared_norm(p)

        sums = torch.zeros(3, device=self._device())
        if self.descent.needs_products:
            sums = total(blocks, products, 3, self.groups.sharding(), self._device())
            sums = torch.where((sums < float("inf")).all(), sums, 0.0)
        gate = Everywhere(*sums, None if skipped else self.outcome.not_finite)
        for block in blocks:
            first, both, second, not_finite = gate.on(block.w.device)
            block.w.skip = block.m.skip = not_finite
            if skipped:
                self.descent.skipped(block.w, block.m, (second, both, first))
            else:
                self.descent(block.w, block.g, block.m, (first, both, second))

    def _remember_gradient(self) -> None:
        """For a direction that starts from the previous gradient: this is the next step's."""
        if self.direction.starts_from != "previous":
            return
        inverse = self._inverse_scale()
        for slot in self._slots("gradient", memory=False):
            kept = local(self._vector(PREVIOUS, slot.parameter))
            kept.copy_(local(slot.gradient))
            if inverse is not None:
                kept.mul_(inverse.to(device=kept.device, dtype=kept.dtype))

    def _observe(self) -> None:
        if self.optimizer.when.looks_at_gradient:
            _, mean, variance = self.observed()
            for group in self.optimizer.param_groups:
                group[MEAN], group[VARIANCE] = mean, variance

    def _device(self) -> torch.device:
        parameters = self.groups.parameters()
        return parameters[0].device if parameters else torch.device("cpu")

    def _warn(self, message: str) -> None:
        warn(f"{type(self.optimizer).__name__} {message}", self.optimizer._warned)


def signed_radius(rho: float, source: str, group: dict[str, Any]) -> float:
    """Return the radius, negative where the perturbation points against what it starts from."""
    return -rho if source == "momentum" or group.get("maximize", False) else rho
