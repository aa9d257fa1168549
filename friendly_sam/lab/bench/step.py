"""A whole training step: both passes, the arithmetic and the base update, against SGD's.

ResNet-8 of width 16 on a batch of 128 images of 32x32. Every contender has a network of its own
with the same weights, and trains it on the same images. The learning rate is small, so that the
loss stays where it is: networks that have learnt everything compute with tiny numbers, which
takes longer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from friendly_sam import Every, FriendlySAM, SharpnessAware
from friendly_sam.lab.bench.peers import DECAY, RHO, SIGMA, PlainFriendlySAM, PlainSAM, optional
from friendly_sam.lab.bench.timing import clock, take_turns, timed
from friendly_sam.lab.config.methods import METHODS, complete
from friendly_sam.lab.config.methods import build as build_method
from friendly_sam.lab.counting import counted
from friendly_sam.lab.models import build
from friendly_sam.lab.statistics import ratio, spread

SGD = "SGD"
NORMS = (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)
Closure = Callable[[], Tensor]


@dataclass
class Task:
    """A network, a batch, and the passes over it."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    base: torch.optim.SGD = field(init=False)

    def __post_init__(self) -> None:
        self.base = self.sgd(self.model.parameters())

    def sgd(self, parameters: Any) -> torch.optim.SGD:
        """The base optimizer of every contender."""
        return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, weight_decay=5e-4)

    def loss(self, images: int | None = None) -> Tensor:
        """The loss on the first images of the batch."""
        return F.cross_entropy(self.model(self.images[:images]), self.labels[:images])

    def closure(self) -> Tensor:
        """Forward and backward on the batch."""
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def part(self, share: int) -> Closure:
        """Forward and backward on 1/share of the batch."""

        def closure() -> Tensor:
            loss = self.loss(max(1, len(self.labels) // share))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        return closure

    def gradients_of(self, parameters: list[nn.Parameter]) -> Closure:
        """A forward pass, and a backward pass as far as some parameters need it."""

        def closure() -> Tensor:
            loss = self.loss()
            for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                p.grad = gradient
            return loss

        return closure

    def only(self, chosen: list[nn.Parameter]) -> list[dict[str, Any]]:
        """Groups of which only the first is perturbed."""
        ids = {id(p) for p in chosen}
        rest = [p for p in self.model.parameters() if id(p) not in ids]
        return [{"params": chosen}, {"params": rest, "rho": 0.0}]


def measure_step(
    *,
    rounds: int,
    threads: int,
    batch: int = 128,
    size: int = 32,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure a step of every contender; return what the JSON holds."""
    torch.set_num_threads(threads)
    progress(f"step: ResNet-8 of width 16, batch {batch}, {counted(threads, 'thread')}")
    torch.manual_seed(0)
    start = build("resnet8", classes=10, image_size=size)
    images, labels = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))

    def task() -> Task:
        return Task(copy.deepcopy(start), images, labels)

    entered = steps(task)
    absent = {name: run for name, run in entered.items() if isinstance(run, str)}
    present = {name: run for name, run in entered.items() if not isinstance(run, str)}
    now = clock(threads)

    def turn(run: Closure, count: int) -> Callable[[], float]:
        stopwatch = timed(lambda: [run() for _ in range(count)], now)
        return lambda: stopwatch() / count

    # With `every=k` a step costs the mean of k.
    turns = {name: turn(run, count) for name, (run, count) in present.items()}
    times = take_turns(turns, rounds=rounds, warm_up=2)
    rows = {
        name: {
            "seconds": spread(values).as_dict(),
            "against SGD": ratio(values, times[SGD]).as_dict(),
        }
        for name, values in times.items()
    }
    return {
        "batch": batch, "size": size, "threads": threads, "rounds": rounds,
        "clock": "processor" if threads == 1 else "wall", "rows": rows, "absent": absent,
    }  # fmt: skip


def steps(task: Callable[[], Task]) -> dict[str, tuple[Closure, int] | str]:
    """Every contender's step, and how many steps its turn has; a string says why not."""
    found: dict[str, tuple[Closure, int] | str] = {
        SGD: (plain(task()), 1),
        "SGD, again": (plain(task()), 1),
    }
    found |= {
        method.label: (registered(task(), name), method.every.default)
        for name, method in METHODS.items()
        if method.self_contained
    }
    for share in (2, 4, 8, 16):
        found[f"F-SAM, ascent on 1/{share}"] = (recipe(task(), FriendlySAM, share=share), 1)
    for every in (2, 5):
        found[f"F-SAM, every={every}"] = (recipe(task(), FriendlySAM, when=Every(every)), every)
    found["F-SAM, norm layers only"] = (partly(task(), norm_layers), 1)
    found["F-SAM, last layer only"] = (partly(task(), last_layer), 1)
    found["F-SAM, last layer only, its gradient only"] = (partly(task(), last_layer, lean=True), 1)
    found["davda54's SAM"] = (looped(task(), PlainSAM), 1)
    found["the authors' F-SAM"] = (looped(task(), PlainFriendlySAM), 1)
    found["pytorch_optimizer's F-SAM"] = other_package(task())
    return found


def plain(task: Task) -> Closure:
    """A step of the base optimizer."""

    def step() -> Tensor:
        task.base.zero_grad()
        loss = task.closure()
        task.base.step()
        return loss

    return step


def recipe(
    task: Task, kind: Callable[..., SharpnessAware], *, share: int = 1, **options: Any
) -> Closure:
    """A step of this library; with `share`, the ascent is on that part of the batch."""
    optimizer = kind(task.base, RHO, model=task.model, **options)
    if share == 1:
        return lambda: optimizer.step(task.closure)
    ascent = task.part(share)
    return lambda: optimizer.step(task.closure, ascent=ascent)


def registered(task: Task, name: str) -> Closure:
    """A step of a method of the registry, with its default settings."""
    optimizer = build_method(task.base, name, complete(name, {}), model=task.model)
    return lambda: optimizer.step(task.closure)


def partly(
    task: Task, choose: Callable[[nn.Module], list[nn.Parameter]], *, lean: bool = False
) -> Closure:
    """A step that perturbs some parameters; `lean`: an ascent gradient of these alone."""
    chosen = choose(task.model)
    optimizer = FriendlySAM(task.sgd(task.only(chosen)), RHO, model=task.model)
    if not lean:
        return lambda: optimizer.step(task.closure)
    ascent = task.gradients_of(chosen)
    return lambda: optimizer.step(task.closure, ascent=ascent)


def norm_layers(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of normalisation layers (SAM-ON)."""
    return [p for layer in model.modules() if isinstance(layer, NORMS) for p in layer.parameters()]


def last_layer(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of the last linear layer."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return list(linear[-1].parameters())


def looped(task: Task, kind: type[PlainSAM]) -> Closure:
    """A step of an algorithm that `peers` writes again."""
    loop = kind(list(task.model.parameters()), RHO)

    def step() -> Tensor:
        task.base.zero_grad()
        loss = task.closure()
        loop.ascend()
        task.closure()
        loop.restore()
        task.base.step()
        return loss

    return step


def other_package(task: Task) -> tuple[Closure, int] | str:
    """A step of pytorch_optimizer's F-SAM."""
    package = optional("pytorch_optimizer")
    if package is None:
        return "not installed"
    optimizer = package.FriendlySAM(
        task.model.parameters(), torch.optim.SGD, rho=RHO, sigma=SIGMA, lmbda=DECAY, foreach=True,
        lr=1e-4, momentum=0.9, weight_decay=5e-4,
    )  # fmt: skip

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = task.closure()
        optimizer.step(task.closure)
        return loss

    return step, 1
