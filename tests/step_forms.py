"""Every form of a step: what the signal injector attacks."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from family import batch
from torch import nn
from torch.nn import functional as F

import friendly_sam
from friendly_sam import Every, compat, frozen_statistics


class Network(nn.Module):
    """Parameters of two dtypes, and normalisation layers that only have flags."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        self.wide.double()
        self.narrow = nn.Linear(6, 3)
        self.idle = nn.ModuleList(nn.BatchNorm1d(1, affine=False) for _ in range(5))
        self.idle.extend(nn.InstanceNorm1d(1, track_running_stats=True) for _ in range(3))

    def forward(self, x):
        return self.wide(x) + self.narrow(x.float()).double()

    def closure(self, seed, scaler=None):
        x, y = batch(seed, 8)

        def closure():
            loss = F.cross_entropy(self(x), y)
            (loss if scaler is None else scaler.scale(loss)).backward()
            return loss

        return closure


@dataclass
class Scene:
    """A model and its optimizer, the call that is attacked, and a whole step to go on with."""

    model: Network
    optimizer: Any
    act: Callable[["Scene"], Any]
    go_on: Callable[["Scene"], Any]
    finish: Callable[["Scene"], Any] | None = None
    """What ends a step that a call of its own has begun (`second_step`)."""
    leaving: Callable[[], Any] = lambda: None
    left: Callable[[], Any] = lambda: None
    """Called where the block of a `with` ends, and after it."""
    before: Callable[["Scene"], Any] = lambda scene: None
    """What comes before the call that is attacked."""

    def __post_init__(self):
        self.start = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
        self.before(self)

    def rewind(self):
        """To where it started, which is quicker than to make it anew."""
        self.model.load_state_dict(self.start[0])
        self.optimizer.load_state_dict(copy.deepcopy(self.start[1]))
        self.optimizer.zero_grad()
        self.leaving = self.left = lambda: None
        self.before(self)

    def weights(self):
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def flags(self):
        layers = [each for each in self.model.modules() if hasattr(each, "track_running_stats")]
        return [(each.training, each.track_running_stats, each.momentum) for each in layers]

    def own(self):
        """What the wrapper keeps for its parameters (the EMA and its count), by name."""
        found = {}
        groups = self.optimizer.param_groups
        parameters = [parameter for group in groups for parameter in group["params"]]
        for key, values in self.optimizer.state_dict()["state"].items():
            of_base = self.optimizer.base.state.get(parameters[key], {})
            for name in sorted(values.keys() - of_base.keys()):
                value = torch.as_tensor(values[name]).detach().clone()
                found.setdefault(name.partition("_")[0], []).append(value)
        found["clock"] = [torch.tensor(group["ascent_clock"]) for group in groups]
        return found


# -- the forms of a step --------------------------------------------------------------------


def scene(recipe, act, steps=1, **options):
    torch.manual_seed(0)
    model = Network()
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = recipe(base, model=model, **options)
    for _ in range(steps):
        optimizer.step(model.closure(0))
    return Scene(model, optimizer, act, by_closure)


def by_closure(scene):
    scene.optimizer.step(scene.model.closure(1))


def by_hand(scene, scaler=None):
    closure = scene.model.closure(1, scaler)
    scene.optimizer.zero_grad()
    closure()
    with scene.optimizer.perturbed(scaler=scaler):
        closure()
        scene.leaving()
    scene.left()
    if scaler is None:
        scene.optimizer.step()
    else:
        scaler.step(scene.optimizer)
        scaler.update()


def by_hand_in_one_pass(scene):
    scene.optimizer.zero_grad()
    with scene.optimizer.perturbed():
        scene.model.closure(1)()
        scene.leaving()
    scene.left()
    scene.optimizer.step()


def scaled(scene):
    by_hand(scene, torch.amp.GradScaler("cpu", init_scale=2.0**10))


def with_another_ascent(scene):
    scene.optimizer.step(scene.model.closure(1), ascent=scene.model.closure(2))


def skipped_by_hand(scene):
    scene.optimizer.zero_grad()
    scene.model.closure(1)()
    scene.optimizer.skip()
    nn.utils.clip_grad_norm_(scene.model.parameters(), 0.1)
    scene.optimizer.step()


def frozen(scene):
    with frozen_statistics(scene.model):
        scene.model.closure(1)()
        scene.leaving()


def two_step(act, finish=None, before=None):
    torch.manual_seed(0)
    model = Network()
    settings = {"rho": 0.1, "lr": 0.05, "momentum": 0.9}
    optimizer = compat.FriendlySAM(model.parameters(), torch.optim.SGD, **settings)
    in_two_steps(model, optimizer)
    return Scene(model, optimizer, act, go_on_in_two_steps, finish, before=before)


def in_two_steps(model, optimizer):
    model.closure(1)()
    optimizer.first_step(zero_grad=True)
    model.closure(1)()
    optimizer.second_step(zero_grad=True)


def go_on_in_two_steps(scene):
    scene.optimizer.zero_grad()
    in_two_steps(scene.model, scene.optimizer)


def first_pass(scene):
    scene.model.closure(1)()


def first_step(scene):
    scene.optimizer.first_step(zero_grad=True)


def second_step(scene):
    scene.optimizer.second_step(zero_grad=True)


def to_second_step(scene):
    first_pass(scene)
    first_step(scene)
    scene.model.closure(1)()


def from_first_step(scene):
    scene.model.closure(1)()
    second_step(scene)


def stale(base, **options):
    direction = friendly_sam.Stale(friendly_sam.BatchNoise())
    return friendly_sam.SharpnessAware(base, 0.05, direction=direction, **options)


def msam(base, **options):
    return friendly_sam.MSAM(base, rho=0.05, **options)


FORMS: dict[str, Callable[[Any], Scene]] = {
    "step(closure)": lambda recipe: scene(recipe, by_closure),
    "perturbed()": lambda recipe: scene(recipe, by_hand),
    "perturbed(scaler=)": lambda recipe: scene(recipe, scaled),
    "step(closure, ascent=)": lambda recipe: scene(recipe, with_another_ascent),
    "skipped step(closure)": lambda recipe: scene(recipe, by_closure, when=Every(4)),
    "skip()": lambda recipe: scene(recipe, skipped_by_hand, when=Every(4)),
    "one pass, step(closure)": lambda recipe: scene(stale, by_closure, 2),
    "one pass, perturbed()": lambda recipe: scene(msam, by_hand_in_one_pass, 2),
    "first_step": lambda recipe: two_step(first_step, from_first_step, first_pass),
    "second_step": lambda recipe: two_step(second_step, second_step, to_second_step),
    "compat step(closure)": lambda recipe: two_step(by_closure, before=first_pass),
    "frozen_statistics": lambda recipe: scene(recipe, frozen),
}
LEAVING = ("perturbed()", "one pass, perturbed()", "frozen_statistics")
"""The forms with a `with` of the user's own."""


def form_of(number):
    """By turns the form with a closure and the one by hand."""
    return ("perturbed()", "step(closure)")[number % 2]
