"""Promises 1 and 2: the weights come back bit for bit, whatever happens."""

import itertools
import linecache
import os
import signal
import sys

import pytest
import torch
from family import BASES, FAMILY, assert_same, closure_of, momentum, network, weights
from torch.utils._python_dispatch import TorchDispatchMode

from friendly_sam import FriendlySAM
from friendly_sam._machinery.interrupts import Uninterrupted
from friendly_sam.compat import FriendlySAM as CompatFriendlySAM

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """Whoever starts the tests in the background of a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", FAMILY)
def test_the_weights_come_back_bit_for_bit_in_the_same_storage(method, dtype):
    model = network(dtype)
    optimizer = FAMILY[method](momentum(model.parameters()))
    for seed in range(3):  # the first step of some directions does not move
        closure_of(model, seed)()
        before, places = weights(model), [p.data_ptr() for p in model.parameters()]
        with optimizer.perturbed():
            inside = weights(model)
            assert [p.data_ptr() for p in model.parameters()] == places
        assert_same(weights(model), before)
        assert [p.data_ptr() for p in model.parameters()] == places
    assert any(not torch.equal(a, b) for a, b in zip(inside, before, strict=True))


class Broken(Exception):
    pass


def failing(closure, on_call, error):
    calls = itertools.count(1)

    def wrapped():
        if next(calls) == on_call:
            raise error
        return closure()

    return wrapped


def state_of(optimizer):
    return [x.clone() for s in optimizer.base.state.values() for x in s.values() if x is not None]


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
@pytest.mark.parametrize("failing_pass", [1, 2])
@pytest.mark.parametrize("method", FAMILY)
def test_an_exception_in_a_pass_leaves_weights_and_base_state(method, failing_pass, error):
    model = network(batchnorm=True)
    optimizer = FAMILY[method](BASES["AdamW"](model.parameters()), model=model)
    for seed in range(2):
        optimizer.step(closure_of(model, seed))
    before, state = weights(model), state_of(optimizer)
    with pytest.raises(error):
        optimizer.step(failing(closure_of(model, 2), failing_pass, error))
    assert_same(weights(model), before)
    assert_same(state_of(optimizer), state)
    assert model[1].track_running_stats
    optimizer.step(closure_of(model, 3))  # and the optimizer is usable


def test_an_exception_inside_perturbed_leaves_the_weights():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()))
    closure_of(model, 0)()
    before = weights(model)
    with pytest.raises(Broken), optimizer.perturbed():
        raise Broken
    assert_same(weights(model), before)


def test_an_exception_between_perturbed_and_step_leaves_the_weights():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()))
    before = weights(model)
    closure_of(model, 0)()
    with pytest.raises(Broken):
        with optimizer.perturbed():
            closure_of(model, 0)()
        raise Broken
    assert_same(weights(model), before)
    optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(weights(model), before, strict=True))


class FailsAtOperation(TorchDispatchMode):
    def __init__(self, number, done):
        super().__init__()
        self.left, self.done = number, done

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.left -= 1
        if self.left == 0:
            if self.done:
                func(*args, **(kwargs or {}))
            raise KeyboardInterrupt
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("method", FAMILY)
def test_a_fault_at_any_operation_of_the_ascent_leaves_the_weights(method, done):
    """Every single tensor operation of entering fails once, before it is done or after."""
    for number in itertools.count(1):
        torch.manual_seed(0)
        model = network()
        optimizer = FAMILY[method](momentum(model.parameters()))
        for seed in range(2):
            optimizer.step(closure_of(model, seed))
        closure_of(model, 2)()
        before = weights(model)
        averages = [m.clone() for m in optimizer.memory.tensors("ema").values()]
        weight = getattr(optimizer.direction, "theta", 1 - 0.9)
        taken_in = [m.lerp(p.grad, weight) for p, m in optimizer.memory.tensors("ema").items()]
        context = optimizer.perturbed()
        try:
            with FailsAtOperation(number, done):
                context.__enter__()
        except KeyboardInterrupt:
            assert_same(weights(model), before)
            after = list(optimizer.memory.tensors("ema").values())
            old = all(torch.equal(m, n) for m, n in zip(after, averages, strict=True))
            new = all(torch.equal(m, n) for m, n in zip(after, taken_in, strict=True))
            assert old or new, f"the average is half-updated after operation {number}"
            optimizer.step(closure_of(model, 3))
            continue
        context.__exit__(None, None, None)
        assert_same(weights(model), before)
        assert number > 5
        return


class CtrlC:
    """Sends the signal's handler to the line with this number, of those that are run."""

    def __init__(self, number, files):
        self.left, self.files = number, files

    def trace(self, frame, event, _):
        # A `try` has no instruction of its own at which a signal could come.
        path, line = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and linecache.getline(path, line).strip() != "try:":
            self.left -= 1
            if self.left == 0:
                signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)
        return self.trace

    def __call__(self, frame, event, _):
        return self.trace if frame.f_code.co_filename.endswith(self.files) else None

    def __enter__(self):
        sys.settrace(self)

    def __exit__(self, *_):
        sys.settrace(None)


OURS = ("optimizer.py", "perturbation.py", "batchnorm.py", "gradients.py", "interrupts.py")


@pytest.mark.parametrize("way", ["step", "perturbed", "compat", "first_step"])
def test_ctrl_c_at_any_line_leaves_the_weights(way):
    """Wherever it comes, the weights are those before the step or, at its end, those after."""

    def run(number):
        """The weights before and after, and Ctrl-C if it came."""
        torch.manual_seed(0)
        model = network()
        if way in ("compat", "first_step"):
            optimizer = CompatFriendlySAM(model.parameters(), torch.optim.SGD, lr=0.1)
        else:
            optimizer = FriendlySAM(momentum(model.parameters()), model=model)
        for _ in range(2):
            closure_of(model, 0)()
            with optimizer.perturbed():
                closure_of(model, 0)()
        before = weights(model)
        # What contextlib does for `with perturbed()` is nobody's to guard.
        files = OURS if way == "perturbed" else (*OURS, "friendly_sam/compat.py", "/contextlib.py")
        came = None
        try:
            with CtrlC(number, files):
                if way == "perturbed":
                    with optimizer.perturbed():
                        closure_of(model, 1)()
                elif way == "first_step":
                    closure_of(model, 1)()
                    optimizer.first_step()
                else:
                    optimizer.step(closure_of(model, 1))
        except KeyboardInterrupt as error:
            came = error  # with its frames: what they hold is not cleared away yet
        assert way == "first_step" or not optimizer._perturbation.active
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return before, weights(model), came

    before, after, came = run(0)
    assert not came
    for number in itertools.count(1):
        _, left, came = run(number)
        if not came:
            break
        ends = (before,) if way == "first_step" else (before, after)
        assert any(all(map(torch.equal, left, end)) for end in ends), f"left at w + ε, {number}"
    assert number > 100


def test_ctrl_c_waits_until_the_weights_are_whole():
    """A real signal, sent while the weights are on their way back."""
    reached = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(True)
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_during_the_ascent_leaves_the_weights_and_a_whole_average():
    """Parameters of two dtypes are two blocks; the signal comes between their averages' updates."""

    class Interrupts(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func._schema.name == "aten::_foreach_lerp_":
                os.kill(os.getpid(), signal.SIGINT)
            return result

    a = torch.nn.Parameter(torch.randn(3, dtype=torch.float32))
    b = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))
    optimizer = FriendlySAM(torch.optim.SGD([a, b], lr=0.1))
    a.grad, b.grad = torch.randn_like(a), torch.randn_like(b)
    before = [a.detach().clone(), b.detach().clone()]
    taken_in = [torch.zeros_like(p).lerp(p.grad, 1 - 0.9).detach() for p in (a, b)]
    with pytest.raises(KeyboardInterrupt), Interrupts():
        optimizer.perturbed().__enter__()
    assert_same([a.detach(), b.detach()], before)
    assert_same(optimizer.memory.tensors("ema").values(), taken_in)


def test_perturbed_cannot_be_nested():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()))
    closure_of(model, 0)()
    before = weights(model)
    with pytest.raises(RuntimeError, match="cannot be nested"), optimizer.perturbed():
        with optimizer.perturbed():
            pass
    assert_same(weights(model), before)


def test_a_step_inside_perturbed_is_refused():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()))
    closure_of(model, 0)()
    before = weights(model)
    with pytest.raises(RuntimeError, match="leave the context first"), optimizer.perturbed():
        optimizer.step()
    assert_same(weights(model), before)
