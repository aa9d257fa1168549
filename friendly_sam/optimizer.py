"""`SharpnessAware`: any base optimizer, stepping with the gradient at w + ε."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from friendly_sam.batchnorm import frozen_statistics
from friendly_sam.blocks import Climber, Gathered, Shards, gather, shards
from friendly_sam.checks import (
    check_base,
    check_count,
    check_local_ascent,
    check_model,
    check_number,
)
from friendly_sam.directions import Direction
from friendly_sam.geometries import Geometry
from friendly_sam.memory import Memory
from friendly_sam.names import picked_by_name
from friendly_sam.perturbation import Moved, climb, descend, gradient_norms, uninterrupted
from friendly_sam.randomness import random_state
from friendly_sam.warn import warn

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager

    from friendly_sam.fused import Kernels

Closure = Callable[[], Any]
CLOCK = "ascent_clock"
"""Where a parameter group keeps the number of steps taken, which `every` looks at."""


class Options(TypedDict, total=False):
    """What every recipe takes besides its own settings: see `SharpnessAware`."""

    model: nn.Module | None
    every: int
    sync_ascent: bool
    replay_rng: bool
    fused: bool


class SharpnessAware(Optimizer):
    """Sharpness-aware training over any base optimizer.

    A step climbs from w to w + ε, takes the gradient there, comes back to w, bit for bit, and
    lets the base optimizer step with that gradient (the paper's algorithm 1):

        g  = ∇L(w)                        first pass
        d  = direction(g)                 which way to climb
        ε  = ρ T² d / ||T d||             T the geometry; norm over all parameters together
        g' = ∇L(w + ε)                    second pass
        w  ← base optimizer's step from w with g'

    The wrapper shares `param_groups` and `state` with the base optimizer. Each group has its
    radius in `param_groups[i]["rho"]` (one that is already in the base's group wins), so any code
    can drive it; for a base with a `rho` of its own, such as Adadelta, the key is `radius_key`. A
    group with radius 0 is neither perturbed nor counted in the norm, and keeps no average.

    Args:
        base: a `torch.optim.Optimizer` instance that can step without a closure.
        rho: the radius ρ ≥ 0.
        direction: which way to climb, see `friendly_sam.directions`.
        geometry: the shape of the ball, see `friendly_sam.geometries`.
        model: the model that is trained. With it, running statistics of normalisation layers move
            once a step, and parameters have names.
        every: ascend on steps 0, k, 2k, ... and take plain base steps in between.
        sync_ascent: with False, under DistributedDataParallel each process climbs along the
            gradient of its own part of the batch and keeps its own average (m-sharpness);
            `model` must then be the DDP module.
        replay_rng: give both passes of `step(closure)` the same random numbers (dropout masks).
        fused: do the arithmetic of the ascent in kernels that `torch.compile` makes at the first
            step and keeps on disk; same results within rounding, less memory traffic. Where none
            can be compiled, a warning says so and the ordinary path is taken; so it is, silently,
            for small tensors and for what has no kernel (plain SAM, `Residual`, a projection).

    Example:
        >>> import torch
        >>> from friendly_sam import BatchNoise, Euclidean, SharpnessAware
        >>> model = torch.nn.Linear(4, 2)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = SharpnessAware(
        ...     base, 0.05, direction=BatchNoise(), geometry=Euclidean(), model=model)
        >>> x, y = torch.randn(8, 4), torch.randint(2, (8,))
        >>> def closure():
        ...     loss = torch.nn.functional.cross_entropy(model(x), y)
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(closure)
    """

    def __init__(
        self,
        base: Optimizer,
        rho: float,
        *,
        direction: Direction,
        geometry: Geometry,
        model: nn.Module | None = None,
        every: int = 1,
        sync_ascent: bool = True,
        replay_rng: bool = False,
        fused: bool = False,
    ) -> None:
        check_base(base)
        if isinstance(base, SharpnessAware):
            raise TypeError(f"base must be a plain optimizer, not a {type(base).__name__}")
        check_number("rho", rho, at_least=0)
        if not isinstance(direction, Direction):
            raise TypeError(f"direction must be a friendly_sam Direction, not {direction!r}")
        if not isinstance(geometry, Geometry):
            raise TypeError(f"geometry must be a friendly_sam Geometry, not {geometry!r}")
        check_model(model, base)
        check_count("every", every)
        self.base = base
        self.direction = direction
        self.geometry = geometry
        self.model = model
        self.every = every
        self.sync_ascent = sync_ascent
        self.replay_rng = replay_rng
        self.fused = fused
        self.radius_key = "ascent_rho" if "rho" in base.defaults else "rho"
        self.memory = Memory()
        self._moved: list[Moved] = []
        self._kernels: Kernels | None = None
        self._gathered: Gathered | None = None
        self._inside = False
        self._ascended = False
        self._warned: set[str] = set()
        for index, group in enumerate(base.param_groups):
            radius = group.get(self.radius_key, rho)
            check_number(f'param_groups[{index}]["{self.radius_key}"]', radius, at_least=0)
        if not sync_ascent:
            check_local_ascent(model, base)
        self._scaled = picked_by_name(geometry.only, model, base.param_groups)
        super().__init__(
            base.param_groups, {**base.defaults, self.radius_key: float(rho), CLOCK: 0}
        )
        self._share()

    # -- what a training loop calls ---------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Closure | None = None, *, ascent: Closure | None = None) -> Any:
        """Take one step.

        With a closure (forward and backward; gradients are zeroed before each call) this is the
        whole method: two passes, or one on the steps that `every` skips and when every radius is
        0. Without one it is the base optimizer's step, for loops that ascend by `perturbed()`.

        Args:
            closure: computes the loss and its gradient, and returns the loss.
            ascent: another closure whose gradient climbs: the full gradient (SAM-full), another
                batch (SAM-db), a larger or a smaller one. It is called at w and does not move
                running statistics; `closure` is then called at w + ε only.

        Returns:
            The loss at w: that of `closure`, or of `ascent` where it was called.
        """
        self._share()
        if self._inside:
            raise RuntimeError("step() was called inside perturbed(): leave the context first")
        if closure is None:
            if ascent is not None:
                raise ValueError("ascent was given without a closure")
            self._step_with_given_gradients()
            return None
        closure = torch.enable_grad()(closure)
        if not self.ascent_due:
            self.zero_grad()
            loss = closure()
            self._let_averages_take_in()
        else:
            loss = self._two_passes(closure, ascent)
        self.base.step()
        self._ascended = False
        self._tick()
        return loss

    def perturbed(
        self, *, scaler: torch.amp.GradScaler | None = None, freeze_statistics: bool = True
    ) -> _GeneratorContextManager[None]:
        """Inside the context the weights are w + ε; leaving it brings back w, bit for bit.

        Entering takes the gradients at w that a backward pass left in `.grad`, computes ε from
        them and sets them to None; the backward pass inside leaves those at w + ε for `step()`.

        Args:
            scaler: the GradScaler that scaled the loss of the first pass. The perturbation and
                the moving average are those of the true gradient, whatever the scale is; a first
                gradient that overflowed gives no perturbation.
            freeze_statistics: whether the pass inside leaves running statistics alone (of
                `model`, where one was given).

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
        if self.replay_rng:
            raise RuntimeError(
                "replay_rng=True works with step(closure) only: when perturbed() is entered, the "
                "random numbers of the first pass are gone"
            )
        return self._perturbed(scaler=scaler, freeze_statistics=freeze_statistics)

    @property
    def ascent_due(self) -> bool:
        """Whether the next step should ascend: `every` says so and some radius is above 0."""
        groups = self.param_groups
        return bool(
            groups
            and groups[0].get(CLOCK, 0) % self.every == 0
            and any(self._radius(group) > 0 for group in groups)
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapper and its base; its radius is `rho` unless it has its own."""
        if self.param_groups is not self.base.param_groups:
            super().add_param_group(param_group)  # called from Optimizer.__init__
            return
        radius = param_group.get(self.radius_key, self.defaults[self.radius_key])
        check_number(f'param_group["{self.radius_key}"]', radius, at_least=0)
        self.base.add_param_group(param_group)
        self._share()
        self._scaled = picked_by_name(self.geometry.only, self.model, self.param_groups)

    # -- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The base's state, moving averages, radii and counters, in torch's own layout."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        state_dict = self.memory.merge_into(self.base.state_dict(), self._parameters())
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            state_dict = post_hook(self, state_dict) or state_dict
        return state_dict

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave, or that of a plain base optimizer, to go on from it."""
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        settings = [(group[self.radius_key], group[CLOCK]) for group in self.param_groups]
        base_state, memory = self.memory.split_from(state_dict, self._parameters())
        self.base.load_state_dict(base_state)
        self.memory, self._gathered = memory, None
        for group, (radius, clock) in zip(self.base.param_groups, settings, strict=True):
            group.setdefault(self.radius_key, radius)
            group.setdefault(CLOCK, clock)
        self._share()
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_moved", "_kernels", "_gathered", "state", "param_groups", "step")
        return {
            key: value
            for key, value in self.__dict__.items()
            if key not in left_out and not key.startswith("_optimizer_")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._moved, self._kernels, self._gathered = [], None, None
        self._share()

    def __repr__(self) -> str:
        base = repr(self.base).replace("\n", "\n  ")
        return (
            f"{type(self).__name__}(\n  direction={self.direction},\n"
            f"  geometry={self.geometry},\n  base={base}\n)"
        )

    # -- how it is done ---------------------------------------------------------------------

    def _two_passes(self, closure: Closure, ascent: Closure | None) -> Any:
        rewind = None
        if self.replay_rng:
            rewind = random_state(parameter.device for parameter in self._parameters())
        self.zero_grad()
        with ExitStack() as first_pass:
            if not self.sync_ascent:
                first_pass.enter_context(self.model.no_sync())  # type: ignore[operator,union-attr]
            if ascent is None:
                loss = closure()
            else:
                first_pass.enter_context(frozen_statistics(self.model))
                loss = torch.enable_grad()(ascent)()
        self._second_pass(closure, rewind=rewind, freeze_statistics=ascent is None)
        return loss

    def _second_pass(
        self,
        closure: Closure,
        *,
        rewind: Callable[[], None] | None = None,
        freeze_statistics: bool,
    ) -> None:
        self._refuse_nesting()
        try:
            with self._perturbed(freeze_statistics=freeze_statistics):
                if rewind is not None:
                    rewind()
                closure()
        finally:
            self._come_back()  # where Ctrl-C came before the context could

    @contextmanager
    def _perturbed(
        self, *, scaler: torch.amp.GradScaler | None = None, freeze_statistics: bool
    ) -> Iterator[None]:
        self._refuse_nesting()
        self._share()
        self._inside, self._ascended = True, False
        try:
            self._ascend(scaler)
            with frozen_statistics(self.model) if freeze_statistics else nullcontext():
                yield
            self._ascended = True
        finally:
            try:
                with uninterrupted():
                    self._come_back()
            finally:
                self._come_back()  # where Ctrl-C came before it was held back

    @torch.no_grad()
    def _ascend(self, scaler: torch.amp.GradScaler | None = None) -> None:
        """Use up the gradients to move the weights to w + ε."""
        climbing = self._climbing()
        if not climbing and self._parameters() and all(p.grad is None for p in self._parameters()):
            self._warn_once(
                f"{type(self).__name__} found no gradient to climb along, so nothing happens. The "
                "closure must call backward(); with perturbed(), the first backward() comes before."
            )
        inverse_scale = None
        if scaler is not None and scaler.is_enabled() and climbing:
            one = torch.ones((), device=climbing[0][0].device)
            inverse_scale = scaler.scale(one).reciprocal()  # get_scale() would synchronise
        gathered = self._gather(climbing)
        try:
            with uninterrupted():
                finite = climb(
                    gathered.blocks,
                    self.direction,
                    self.geometry,
                    moved=self._moved,
                    groups=self._sharding(),
                    inverse_scale=inverse_scale,
                    kernels=self._kernels,
                )
                if finite and self.direction.keeps_average:
                    self.memory.count(parameter for parameter, _ in climbing)
        finally:
            gathered.clear()

    def _gather(self, climbing: list[tuple[Tensor, float]]) -> Gathered:
        """What climbs, in blocks, with the gradients taken out of `.grad`."""
        parts = self.direction, self.geometry
        if self.fused and not (self._kernels is not None and self._kernels.still_fit(*parts)):
            from friendly_sam.fused import kernels_for  # imports the compiler, which takes a while

            if self._kernels is not None:
                self._warn_once(
                    f"direction or geometry of this {type(self).__name__} has changed: with "
                    "fused=True kernels are compiled anew for each setting, which takes seconds."
                )
            self._kernels = kernels_for(*parts)
        gathered, self._gathered = self._gathered, None
        lasting = self.direction.reference is None and not self.direction.counts_updates
        if not (
            lasting
            and gathered is not None
            and gathered.fill(climbing, self._setting(), self.memory.averages)
        ):
            climbers = self._climbers(climbing)
            if self.direction.reference is not None:
                self._take_references(self.direction.reference, climbers)
            blocks = gather(climbers, self._kernels.take if self._kernels is not None else None)
            gathered = Gathered(blocks, climbers, self._setting())
        for parameter in self._parameters():
            parameter.grad = None
        if lasting and gathered.lasts:
            self._gathered = gathered
        return gathered

    def _setting(self) -> tuple[object, ...]:
        """What blocks depend on besides the parameters, their radii and their averages."""
        constant = self.direction.constant(0)
        around = self._kernels.surroundings() if self._kernels is not None else None
        return self.memory, self.direction, constant, self._scaled, self._kernels, around

    def _refuse_nesting(self) -> None:
        if self._inside:
            raise RuntimeError("perturbed() is already active: it cannot be nested")

    @torch.no_grad()
    def _come_back(self) -> None:
        """Bring back w, unless that is done."""
        descend(self._moved)
        self._inside = False

    def _take_references(self, reference: Closure, climbers: list[Climber]) -> None:
        self.zero_grad()
        with torch.enable_grad(), frozen_statistics(self.model):
            reference()
        for climber in climbers:
            gradient = climber.parameter.grad
            climber.reference = torch.zeros_like(climber.gradient) if gradient is None else gradient

    def _let_averages_take_in(self) -> None:
        """On a step without ascent, the moving averages take in the descent gradient."""
        if not self.direction.keeps_average:
            return
        with uninterrupted():
            climbing = self._climbing()
            blocks = gather(self._climbers(climbing))
            *_, finite = gradient_norms(blocks, self._sharding())
            if finite:
                for block in blocks:
                    self.direction.take_in(block)
                self.memory.count(parameter for parameter, _ in climbing)

    def _step_with_given_gradients(self) -> None:
        due, counts = self.ascent_due, self._ascended
        if not self._ascended and not self._only_creates_state():
            if not due:
                self._let_averages_take_in()
                counts = True
            elif any(p.grad is not None for p in self._parameters()):
                self._warn_once(
                    f"{type(self).__name__}.step() was called without a closure and without "
                    "perturbed() before it, so this is a plain step of the base optimizer. Pass a "
                    "closure, or take the second gradient inside `with optimizer.perturbed():`."
                )
        if self.direction.keeps_average:
            self._climbers(self._climbing())  # loading goes into what is there
        self.base.step()
        self._ascended = False
        if counts:
            self._tick()

    def _only_creates_state(self) -> bool:
        """Whether every learning rate and gradient is 0.

        That is how torch.distributed.checkpoint makes an optimizer create its state before it
        saves or loads, and saving must change nothing.
        """
        if any(float(group.get("lr", 1.0)) != 0 for group in self.param_groups):
            return False
        squared, *_ = gradient_norms(gather(self._climbers(self._climbing())), self._sharding())
        return squared.item() == 0

    def _climbing(self) -> list[tuple[Tensor, float]]:
        """The parameters that have a gradient and a radius above 0, and that radius."""
        climbing = []
        for group in self.param_groups:
            rho = self._radius(group)
            for parameter in group["params"] if rho > 0 else ():
                gradient = parameter.grad
                if gradient is None:
                    continue
                if gradient.layout != torch.strided:
                    raise TypeError(
                        f"a parameter of shape {tuple(parameter.shape)} has a sparse gradient, "
                        "which cannot climb: use dense gradients, or put it into a group with "
                        f'"{self.radius_key}": 0.0'
                    )
                climbing.append((parameter, rho))
        return climbing

    def _climbers(self, climbing: list[tuple[Tensor, float]]) -> list[Climber]:
        return [
            self.memory.climber(
                parameter,
                rho,
                self.direction,
                scaled=self._scaled is None or parameter in self._scaled,
            )
            for parameter, rho in climbing
        ]

    def _radius(self, group: dict[str, Any]) -> float:
        rho = group.get(self.radius_key, self.defaults[self.radius_key])
        check_number(f'"{self.radius_key}" of a parameter group', rho, at_least=0)
        return float(rho)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warn(message)

    def _tick(self) -> None:
        for group in self.param_groups:
            group[CLOCK] += 1

    def _share(self) -> None:
        """One list of groups and one state for both, also after somebody loaded into the base."""
        self.state = self.base.state
        self.param_groups = self.base.param_groups
        for group in self.param_groups:
            group.setdefault(self.radius_key, self.defaults[self.radius_key])
            group.setdefault(CLOCK, self.param_groups[0].get(CLOCK, 0))

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _sharding(self) -> list[Shards]:
        ways = {shards(parameter): None for parameter in self._parameters()}
        return [way for way in ways if way]
