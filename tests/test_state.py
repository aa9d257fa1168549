"""Promise 3: the state is complete, and a resumed run is the run that did not stop."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from family import (
    BASES,
    FAMILY,
    assert_same,
    closure_of,
    momentum,
    network,
    train,
    weights,
)

from friendly_sam import SAM, BatchNoise, Euclidean, Every, FriendlySAM, SharpnessAware

RESUME = """
import sys, torch
from family import BASES, FAMILY, network, train, weights
from friendly_sam import Every
from test_state import OUTSIDE
method, base, folder = sys.argv[1:]
torch.set_num_threads(1)
model = network()
optimizer = FAMILY[method]({**BASES, **OUTSIDE}[base](model.parameters()), when=Every(2))
saved = torch.load(f"{folder}/checkpoint.pt", weights_only=True)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
train(model, optimizer, 6, start=5)
torch.save({"weights": weights(model), "optimizer": optimizer.state_dict()}, f"{folder}/end.pt")
"""


class SignMomentum(torch.optim.Optimizer):
    """A base optimizer from outside torch, with a state layout of its own."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    if len(state) == 0:
                        state["count"], state["speed"] = 0, torch.zeros_like(p)
                    state["count"] += 1
                    state["speed"].mul_(0.9).add_(p.grad)
                    p.sub_(state["speed"].sign() * group["lr"] / state["count"] ** 0.5)


OUTSIDE = {"from outside torch": lambda p: SignMomentum(p, 1e-2)}


def assert_same_state(left, right):
    assert left["param_groups"] == right["param_groups"]
    assert left["state"].keys() == right["state"].keys()
    for key, values in left["state"].items():
        assert values.keys() == right["state"][key].keys()
        for name, value in values.items():
            other = right["state"][key][name]
            same = torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
            assert same, (key, name)


@pytest.mark.parametrize("base", ["SGD with momentum", "AdamW", "from outside torch"])
@pytest.mark.parametrize("method", ["SAM", "F-SAM", "F-SAM authors", "F-SAM debiased"])
def test_a_run_resumed_in_a_new_process_is_the_run_that_did_not_stop(method, base, tmp_path):
    model = network()
    optimizer = FAMILY[method]({**BASES, **OUTSIDE}[base](model.parameters()), when=Every(2))
    train(model, optimizer, 5)
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(checkpoint, tmp_path / "checkpoint.pt")
    train(model, optimizer, 6, start=5)
    command = [sys.executable, "-c", RESUME, method, base, str(tmp_path)]
    subprocess.run(command, check=True, cwd=Path(__file__).parent)
    end = torch.load(tmp_path / "end.pt", weights_only=True)
    assert_same(end["weights"], weights(model))
    assert_same_state(end["optimizer"], optimizer.state_dict())


@pytest.mark.parametrize("method", FAMILY)
@pytest.mark.parametrize("base", BASES)
def test_every_method_resumes_bit_for_bit(method, base):
    def start():
        torch.manual_seed(0)
        model = network()
        return model, FAMILY[method](BASES[base](model.parameters()))

    model, optimizer = start()
    train(model, optimizer, 4)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, 4, start=4)
    other, resumed = start()
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    train(other, resumed, 4, start=4)
    assert_same(weights(other), weights(model))


def test_state_dict_has_the_layout_of_torch():
    model = network()
    optimizer = FriendlySAM(BASES["AdamW"](model.parameters()))
    train(model, optimizer, 2)
    state_dict = optimizer.state_dict()
    assert set(state_dict) == {"state", "param_groups"}
    assert set(state_dict["state"][0]) == {"step", "exp_avg", "exp_avg_sq", "ema", "ema_updates"}
    assert state_dict["param_groups"][0]["rho"] == 0.05
    assert "ema" not in optimizer.base.state[next(model.parameters())]


def test_loading_does_not_tie_two_optimizers_together():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()))
    train(model, optimizer, 2)
    other = FriendlySAM(momentum(network().parameters()))
    other.load_state_dict(optimizer.state_dict())
    kept = [m.clone() for m in other.memory.tensors("ema").values()]
    train(model, optimizer, 1)
    assert_same(other.memory.tensors("ema").values(), kept)


def test_the_average_is_loaded_in_the_dtype_it_was_saved_in():
    def optimizer_of(model):
        direction = BatchNoise(dtype=torch.bfloat16)
        base = momentum(model.parameters())
        return SharpnessAware(base, 0.1, direction=direction, geometry=Euclidean())

    model = network(torch.float32)
    optimizer = optimizer_of(model)
    train(model, optimizer, 2)
    other = optimizer_of(network(torch.float32))
    other.load_state_dict(optimizer.state_dict())
    assert {m.dtype for m in other.memory.tensors("ema").values()} == {torch.bfloat16}
    assert_same(other.memory.tensors("ema").values(), optimizer.memory.tensors("ema").values())


def test_the_state_of_a_plain_base_optimizer_can_be_loaded():
    model = network()
    base = momentum(model.parameters())
    closure_of(model, 0)()
    base.step()
    optimizer = FriendlySAM(momentum(model.parameters()), 0.3)
    optimizer.load_state_dict(base.state_dict())
    assert optimizer.param_groups[0]["rho"] == 0.3
    for p in model.parameters():
        assert torch.equal(optimizer.state[p]["momentum_buffer"], base.state[p]["momentum_buffer"])
    train(model, optimizer, 1)


def test_a_state_dict_that_does_not_fit_changes_nothing():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()))
    train(model, optimizer, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    wrong = copy.deepcopy(saved)
    wrong["state"][0]["ema"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"must be of shape \(16, 6\), not \(3,\)"):
        optimizer.load_state_dict(wrong)
    small = SAM(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1))
    with pytest.raises(ValueError, match="1 parameters, but this optimizer's group has 4"):
        optimizer.load_state_dict(small.state_dict())
    assert_same_state(optimizer.state_dict(), saved)


def test_loading_into_the_base_is_seen_by_the_wrapper():
    model = network()
    base = momentum(model.parameters())
    optimizer = SAM(base, 0.1)
    base.load_state_dict(base.state_dict())
    base.param_groups[0]["lr"] = 0.0
    before = weights(model)
    train(model, optimizer, 1)
    assert optimizer.param_groups is base.param_groups
    assert_same(weights(model), before)


@pytest.mark.parametrize("method", FAMILY)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_their_own_way_with_the_same_result(method, duplicate):
    model = network(batchnorm=True)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model)
    torch.optim.lr_scheduler.StepLR(optimizer, 3)  # it patches optimizer.step
    train(model, optimizer, 3)
    other, copied = duplicate((model, optimizer))
    assert copied.param_groups is copied.base.param_groups
    assert copied.model is other
    train(model, optimizer, 3, start=3)
    before = weights(model)
    train(other, copied, 3, start=3)
    assert_same(weights(other), before)
    assert_same(weights(model), before)


@pytest.mark.parametrize("base", BASES)
def test_a_bare_step_creates_the_averages_and_takes_nothing_in(base):
    """A checkpoint is loaded into the state that is there: it must have the keys."""
    model = network()
    optimizer = FriendlySAM(BASES[base](model.parameters()))
    assert not optimizer.state
    closure_of(model, 0)()
    with pytest.warns(UserWarning, match="plain step"):
        optimizer.step()
    state = optimizer.state_dict()["state"]
    assert len(state) == 4
    assert all(not s["ema"].any() and s["ema_updates"] == 0 for s in state.values())


def test_hooks_of_the_optimizer_are_called():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()))
    calls = []
    optimizer.register_step_pre_hook(lambda *a: calls.append("before step"))
    optimizer.register_step_post_hook(lambda *a: calls.append("after step"))
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "mine": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, s: calls.append(s.pop("mine")))
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    train(model, optimizer, 1)
    saved = optimizer.state_dict()
    assert saved["mine"] == 1
    optimizer.load_state_dict(saved)
    assert calls == ["before step", "after step", 1, "loaded"]
