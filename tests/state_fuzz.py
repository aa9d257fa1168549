"""State dicts that somebody has damaged: for test_state_fuzz.py and attack.py.

A `Damage` replaces, removes or adds one thing of a state dict. `outcome` loads what is left: it
must be refused, in one line that names the key and with nothing changed, or the next two steps
must work and leave finite weights.
"""

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from family import BASES, FAMILY, closure_of, network, weights

from friendly_sam import Every, RadiusSchedule

REFUSED = (ValueError, TypeError, KeyError)
METHODS = ("F-SAM", "F-SAM debiased", "SAM")
BASE_NAMES = ("SGD with momentum", "AdamW")
GONE = object()


def odd_tensor(kind, like=(16, 6)):
    return {
        "of another shape": lambda: torch.zeros(3),
        "of integers": lambda: torch.ones(like, dtype=torch.int64),
        "of booleans": lambda: torch.ones(like, dtype=torch.bool),
        "complex": lambda: torch.ones(like, dtype=torch.complex64),
        "sparse": lambda: torch.eye(*like).to_sparse(),
        "without memory": lambda: torch.ones(like, device="meta"),
        "empty": lambda: torch.zeros(0),
        "scalar": lambda: torch.tensor(1.0),
        "several": lambda: torch.tensor([1.0, 2.0]),
    }[kind]()


TENSORS = (
    "of another shape", "of integers", "of booleans", "complex", "sparse", "without memory",
    "empty", "scalar", "several",
)  # fmt: skip
HUGE = 10**400
PLAIN = ("x", None, -1, 1.5, HUGE, True, 1j, [], {}, (), [1.0], {"a": 1}, b"x", object)
"""Plain values, each wrong for almost every key."""
NOT_FINITE = (math.nan, math.inf, -math.inf)
OURS = ("rho", "ascent_clock", "ema", "ema_updates")
"""The wrapper's own keys: they are refused for what they hold, not for their kind only."""


@dataclass(frozen=True)
class Damage:
    """One change: the value at `path` becomes `value`, or goes."""

    path: tuple
    value: Any

    @property
    def key(self):
        return next(str(each) for each in reversed(self.path) if isinstance(each, str))

    def apply(self, state_dict):
        inside = state_dict
        for step in self.path[:-1]:
            try:
                inside = inside[step]
            except (KeyError, IndexError, TypeError):
                return  # another damage was here before
        try:
            if self.value is GONE:
                del inside[self.path[-1]]
            else:
                inside[self.path[-1]] = self.value
        except (KeyError, IndexError, TypeError):
            return

    def __repr__(self):
        value = " ".join(repr(self.value).split())
        now = "is gone" if self.value is GONE else f"= {value:.60}"
        return f"{'/'.join(map(str, self.path))} {now}"


def start(method="F-SAM", base="SGD with momentum"):
    """A model and an optimizer of two groups that has taken two steps."""
    torch.manual_seed(0)
    model = network()
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[2].parameters())}]
    groups[1]["rho"] = 0.1
    optimizer = FAMILY[method](BASES[base](groups), when=Every(2))
    for seed in range(2):
        optimizer.step(closure_of(model, seed))
    return model, optimizer


def all_damages(state_dict):
    """Every single damage to a state dict like this one."""
    places = [("state",), ("param_groups",)]
    places += [("param_groups", i) for i, _ in enumerate(state_dict["param_groups"])]
    places += [("state", i) for i in state_dict["state"]]
    found = [Damage(place, value) for place in places for value in (*PLAIN, GONE)]
    for i, group in enumerate(state_dict["param_groups"]):
        for key, value in group.items():
            found += of_group(("param_groups", i, key), key, value)
    for i, values in state_dict["state"].items():
        for key, value in values.items():
            found += of_state(("state", i, key), key, value)
    groups = state_dict["param_groups"]
    found.append(Damage(("param_groups",), groups[:1]))
    found.append(Damage(("param_groups",), [*groups, copy.deepcopy(groups[0])]))
    found.append(Damage(("param_groups",), [*groups, {"params": [4, 5], "lr": 0.1}]))
    found.append(Damage(("param_groups",), tuple(groups)))
    found.append(Damage(("param_groups", 0, "params"), [0, 0]))
    found.append(Damage(("param_groups", 0, "params"), [0, 7]))
    found.append(Damage(("param_groups", 0, "params"), [[0], 1]))
    found.append(Damage(("state", 9), {"ema": torch.zeros(2)}))
    found.append(Damage(("state", "x"), 1))
    return found


def of_group(path, key, value):
    """What may stand in the place of a setting; of the base's, only what is of another kind."""
    values = [each for each in PLAIN if key in OURS or not same_kind(each, value)]
    values += [odd_tensor(kind) for kind in ("of another shape", "complex", "without memory")]
    if key in OURS or key == "lr":
        values += NOT_FINITE
    return [Damage(path, each) for each in (*values, GONE)]


def same_kind(given, present):
    """Whether torch itself might take `given` for `present`, for better or worse."""
    if present is None or isinstance(given, type(present)):
        return True
    if isinstance(present, bool):
        return isinstance(given, int | float)
    return isinstance(given, int | float) and isinstance(present, int | float) and given != HUGE


def of_state(path, key, value):
    values = [each for each in PLAIN if not (key == "step" and isinstance(each, (int, float)))]
    values += [odd_tensor(kind) for kind in TENSORS if not (key == "step" and kind == "scalar")]
    if isinstance(value, torch.Tensor) and value.dim():
        values += [value.t(), value.tolist(), value.numpy()] if value.dim() == 2 else []
    if key in OURS:
        values += NOT_FINITE
        if isinstance(value, torch.Tensor) and value.dim():
            values += [torch.full_like(value, math.nan), value.masked_fill(value > 0, math.inf)]
    return [Damage(path, each) for each in (*values, GONE)]


def picture(model, optimizer):
    """All there is, so that a change of any of it shows."""
    groups = [list(map(id, group["params"])) for group in optimizer.param_groups]
    return copy.deepcopy([weights(model), optimizer.state_dict(), groups])


def equal(left, right):
    """Whether two nests of tensors and values are the same, NaN included."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return (
            type(left) is type(right)
            and left.dtype == right.dtype
            and torch.equal(left.isnan(), right.isnan())
            and torch.equal(left.nan_to_num(), right.nan_to_num())
        )
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    return left == right or (left != left and right != right)


def outcome(model, optimizer, damaged, names):
    """What loading gives: "refused" or "loaded", else what is wrong with it."""
    before = picture(model, optimizer)
    try:
        optimizer.load_state_dict(damaged)
    except REFUSED as error:
        if not equal(before, picture(model, optimizer)):
            return f"refused, but changed: {error}"
        if "\n" in str(error) or not any(name in str(error) for name in names):
            return f"{type(error).__name__} in several lines or without the key: {error}"
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        for seed in (2, 3):
            optimizer.step(closure_of(model, seed))
    except Exception as error:
        return f"loaded, then {type(error).__name__}: {error}"
    if not all(weight.isfinite().all() for weight in weights(model)):
        return "loaded, then weights that are not finite"
    return "loaded"


def try_damages(method, base, found):
    """What loading a state dict with these damages gives."""
    model, optimizer = start(method, base)
    damaged = copy.deepcopy(optimizer.state_dict())
    for damage in found:
        damage.apply(damaged)
    names = {damage.key for damage in found} | {"state", "param"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return outcome(model, optimizer, damaged, names)


SCHEDULE = [
    Damage((key,), value)
    for key in ("t", "start")
    for value in (*PLAIN, *NOT_FINITE, GONE, [-1.0, 0.1], [math.nan, 0.1], ["x", 0.1], [0.1])
] + [Damage(("start",), [0.1, 0.1, 0.1]), Damage(("start",), [HUGE, 0.1])]


def try_schedule(found):
    """The same for `RadiusSchedule`: refused with nothing changed, or the next two steps work."""
    _, optimizer = start()
    schedule = RadiusSchedule.inverse_sqrt(optimizer)
    schedule.step()
    before = copy.deepcopy([schedule.state_dict(), [g["rho"] for g in optimizer.param_groups]])
    damaged = copy.deepcopy(schedule.state_dict())
    for damage in found:
        damage.apply(damaged)
    try:
        schedule.load_state_dict(damaged)
    except REFUSED as error:
        after = [schedule.state_dict(), [g["rho"] for g in optimizer.param_groups]]
        if not equal(before, after):
            return f"refused, but changed: {error}"
        names = {damage.key for damage in found} | {"group"}
        if "\n" in str(error) or not any(name in str(error) for name in names):
            return f"{type(error).__name__} in several lines or without the key: {error}"
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        schedule.step()
        radii = [group["rho"] for group in optimizer.param_groups]
        return "loaded" if all(0 <= rho < math.inf for rho in radii) else f"loaded: {radii}"
    except Exception as error:
        return f"loaded, then {type(error).__name__}: {error}"
