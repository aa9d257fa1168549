"""`SharpnessAware`: any base optimizer, stepping with the gradient at w + ε."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from friendly_sam._machinery import checks
from friendly_sam._machinery.assembled import Assembled
from friendly_sam._machinery.gradients import Gradients
from friendly_sam._machinery.hooks import own_hooks
from friendly_sam._machinery.inference import ordinary_mode
from friendly_sam._machinery.interrupts import Uninterrupted
from friendly_sam._machinery.lightning_closure import warn_of_lightning
from friendly_sam._machinery.randomness import random_state
from friendly_sam._machinery.record import LastStep
from friendly_sam._machinery.warn import warn
from friendly_sam.ascent import Moved
from friendly_sam.batchnorm import frozen_statistics
from friendly_sam.descents import Descent, PerturbedGradient
from friendly_sam.directions import Direction
from friendly_sam.geometries import Euclidean, Geometry
from friendly_sam.perturbation import Perturbation
from friendly_sam.policies import Every, Policy

Closure = Callable[[], Any]


class Options(TypedDict, total=False):
    """What every recipe takes besides its own settings: see `SharpnessAware`."""

    model: nn.Module | None
    when: Policy
    sync_ascent: bool
    replay_rng: bool


class SharpnessAware(Assembled):
    """Sharpness-aware training over any base optimizer: a method is a point on four axes.

        g  = ∇L_A(w)                      ascent pass
        d  = direction(g, m)              which way; m is what is remembered of earlier gradients
        ε  = ρ T² d / ||T d||             T the geometry; norm over all parameters together
        g' = ∇L_B(w + ε)                  descent pass; the weights come back bit for bit
        u  = descent(g, g')               what the base optimizer gets
        w  ← base optimizer's step from w with u

    on the steps that `when` chooses; on the others the base optimizer steps with the gradient at
    w. The wrapper has the `param_groups` and the `state` of its base. Each group has its radius
    in `param_groups[i]["rho"]` (one that is already in the base's group wins), so any code can
    drive it; for a base with a `rho` of its own, such as Adadelta, the key is `radius_key`. A
    group with radius 0 is neither perturbed nor counted in the norm, and keeps no EMA.

    Args:
        base: a `torch.optim.Optimizer` instance that can step without a closure.
        rho: the radius ρ ≥ 0.
        direction: which way, see `friendly_sam.directions`.
        geometry: the neighbourhood, see `friendly_sam.geometries`.
        descent: what the base gets, see `friendly_sam.descents`.
        when: on which steps, see `friendly_sam.policies`.
        model: the model that is trained. With it, running statistics of normalisation layers move
            once a step, and parameters have names.
        sync_ascent: with False, under DistributedDataParallel each process is perturbed along the
            gradient of its own part of the batch and keeps its own EMA (m-sharpness); `model`
            must then be the DDP module.
        replay_rng: give both passes of `step(closure)` the same random numbers (dropout masks).

    Example:
        >>> import torch
        >>> from friendly_sam import BatchNoise, SharpnessAware, SurrogateGap
        >>> model = torch.nn.Linear(4, 2)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = SharpnessAware(
        ...     base, 0.05, direction=BatchNoise(), descent=SurrogateGap(), model=model)
        >>> x, y = torch.randn(8, 4), torch.randint(2, (8,))
        >>> def closure():
        ...     loss = torch.nn.functional.cross_entropy(model(x), y)
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(closure)
    """

    def __new__(cls, *arguments: Any, **settings: Any) -> Any:  # noqa: D102
        checks.check_call(cls, arguments, settings)
        return super().__new__(cls)

    def __init__(
        self,
        base: Optimizer,
        rho: float,
        *,
        direction: Direction,
        geometry: Geometry = Euclidean(),  # noqa: B008 (components hold settings and are frozen)
        descent: Descent = PerturbedGradient(),  # noqa: B008
        when: Policy = Every(),  # noqa: B008
        model: nn.Module | None = None,
        sync_ascent: bool = True,
        replay_rng: bool = False,
    ) -> None:
        axes = {"direction": direction, "geometry": geometry, "descent": descent, "when": when}
        options = {"model": model, "sync_ascent": sync_ascent, "replay_rng": replay_rng}
        super().__init__(base, rho, axes, options)
        self.last = LastStep()
        self._seen = False  # whether the gradients of this step were taken in
        self._warned: set[str] = set()

    # -- what a training loop calls ---------------------------------------------------------

    @own_hooks
    @ordinary_mode
    @torch.no_grad()
    def step(
        self,
        closure: Closure | None = None,
        *,
        ascent: Closure | None = None,
        before_step: Closure | None = None,
    ) -> Any:
        """Take one step.

        With a closure (forward and backward; gradients are zeroed before each call) this is the
        whole method: two passes, or one on the steps that `when` leaves out, for directions
        without an ascent pass, and when every radius is 0. Without one it is the base optimizer's
        step, for loops that use `perturbed()`.

        Args:
            closure: computes the loss and its gradient, and returns the loss.
            ascent: another closure for the ascent pass: the full gradient (SAM-full), another
                batch (SAM-db), a larger or a smaller one. It is called at w and does not move
                running statistics; `closure` is then called at w + ε only.
            before_step: called when u is in the parameters' `.grad`, for example to clip it.

        Returns:
            What the first pass returned: the loss at w, or at w + ε where there is one pass.
        """
        self.refuse_inside("step()")
        if closure is None:
            return self._step_with_given_gradients(ascent, before_step)
        warn_of_lightning(closure, self._warned)
        closure = torch.enable_grad()(closure)
        self.zero_grad()
        loss = perturbed_loss = rewind = None
        if two_passes := self.direction.starts_from == "gradient":
            ascent = ascent if self.ascent_due else None
            rewind = random_state(self.groups.parameters()) if self.replay_rng else None
            loss = self._gradient_at_w(closure, ascent)  # g = ∇L_A(w)
        if self.ascent_due:  # when(t, g)
            away = self._perturbed(freeze_statistics=ascent is None, rewind=rewind)
            perturbed_loss = away.run(closure)  # g' = ∇L_B(w + ε), ε = ρ T² d / ||T d||
        else:
            if not two_passes or ascent is not None:
                self.zero_grad()
                loss = closure()
            self.skip()
        if before_step is not None:
            before_step()
        self.base.step()  # w ← base(w, u), where u = descent(g, g') is in .grad
        self.last.note(loss, perturbed_loss)
        self._seen = False
        self.groups.tick()
        return perturbed_loss if loss is None else loss

    def perturbed(
        self, *, scaler: torch.amp.GradScaler | None = None, freeze_statistics: bool = True
    ) -> Perturbation:
        """Inside the context the weights are w + ε; leaving it brings back w, bit for bit.

        Entering takes the gradients at w that a backward pass left in `.grad`, computes ε from
        them and sets them to None; the backward pass inside leaves those at w + ε, and leaving
        makes u of them, for `step()`. Directions without an ascent pass need no gradient at w.

        Args:
            scaler: the GradScaler that scaled the losses. The perturbation and the EMA are those
                of the true gradient, whatever the scale is; a first gradient that overflowed
                gives no perturbation.
            freeze_statistics: whether the pass inside leaves running statistics alone (of
                `model`, where one was given), if it is the second.

        Example:
            >>> import torch
            >>> from friendly_sam import FriendlySAM
            >>> model = torch.nn.Linear(4, 2)
            >>> optimizer = FriendlySAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.05)
            >>> x = torch.randn(8, 4)
            >>> model(x).square().mean().backward()
            >>> with optimizer.perturbed():
            ...     model(x).square().mean().backward()
            >>> optimizer.step()
        """
        checks.check_scaler(scaler)
        if self.replay_rng:
            raise RuntimeError(
                "replay_rng=True works with step(closure) only: when perturbed() is entered, the "
                "random numbers of the first pass are gone"
            )
        return self._perturbed(scaler=scaler, freeze_statistics=freeze_statistics)

    @ordinary_mode
    @torch.no_grad()
    def skip(self, *, scaler: torch.amp.GradScaler | None = None) -> None:
        """On a step without ascent, take in the gradient at w before anything clips it.

        The EMA is updated, and `.grad` becomes u = descent(g). A bare `step()` does so if nobody
        did; a loop that clips calls this first, so that the EMA holds unclipped gradients.
        """
        checks.check_scaler(scaler)
        self.refuse_inside("skip()")
        checks.check_capture(self.direction, self.when)
        with Uninterrupted():
            Gradients(self, scaler).skip()
            self.last, self._seen = LastStep(), True

    @property
    def ascent_due(self) -> bool:
        """Whether the next step is to be perturbed: `when` says so and some radius is above 0.

        A policy that looks at the gradient decides by what is in `.grad`, if anything is.
        """
        if not any(self.groups.radius(group) > 0 for group in self.param_groups):
            return False
        if not self.when.due(self.groups.clock):
            return False
        return not self.when.looks_at_gradient or Gradients(self).observed()[0]

    # -- how it is done ---------------------------------------------------------------------

    def _gradient_at_w(self, closure: Closure, ascent: Closure | None) -> Any:
        apart = not self.sync_ascent and self.ascent_due
        with self.model.no_sync() if apart else nullcontext():  # type: ignore[operator,union-attr]
            if ascent is None:
                return closure()
            return frozen_statistics(self.model).run(torch.enable_grad()(ascent))

    def _perturbed(
        self,
        *,
        scaler: Any = None,
        freeze_statistics: bool,
        rewind: Callable[[], None] | None = None,
    ) -> Perturbation:
        gradients = Gradients(self, scaler)
        one_pass = self.direction.starts_from != "gradient"

        @ordinary_mode
        @torch.no_grad()
        def ascend(moved: Moved) -> list[tuple[Tensor, Tensor]]:
            self.last, self._seen = LastStep(), False
            away = gradients.ascend(moved)
            self.last.ascended, self.last.outcome = True, gradients.outcome
            if rewind is not None:
                rewind()
            return away

        @ordinary_mode
        @torch.no_grad()
        def finish() -> None:
            gradients.finish()
            self._seen = True

        self.refuse_inside("perturbed()")
        checks.check_capture(self.direction, self.when)
        gradients.prepare()
        model = self.model if freeze_statistics and not one_pass else None
        self._perturbation = Perturbation(ascend, finish, model, self._name)
        return self._perturbation

    def _step_with_given_gradients(self, ascent: Any, before_step: Closure | None) -> None:
        if ascent is not None:
            raise ValueError("ascent was given without a closure")
        counts = self._seen
        if not counts and not self.groups.only_creates_state():
            if not self.ascent_due:
                self.skip()
                counts = True
            elif any(parameter.grad is not None for parameter in self.groups.parameters()):
                warn(
                    f"{type(self).__name__}.step() was called without a closure and without "
                    "perturbed() before it, so this is a plain step of the base optimizer. Pass a "
                    "closure, or take the second gradient inside `with optimizer.perturbed():`.",
                    self._warned,
                )
        Gradients(self).create_memory()
        if before_step is not None:
            before_step()
        self.base.step()
        self._seen = False
        if counts:
            self.groups.tick()
