"""Promise 11: GradScaler, autocast, low-precision weights."""

import pytest
import torch
from family import FAMILY, assert_same, batch, momentum, network, weights
from torch.nn import functional as F

from friendly_sam import SAM, FriendlySAM

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


def scaled_step(model, optimizer, scaler, seed, overflow_in=None):
    x, y = batch(seed, dtype=torch.float32)

    def backward(number):
        loss = F.cross_entropy(model(x), y)
        if overflow_in == number:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        return loss

    backward(1)
    with optimizer.perturbed(scaler=scaler):
        backward(2)
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def run(method, scaler, steps=8):
    torch.manual_seed(0)
    model = network(torch.float32)
    optimizer = FAMILY[method](momentum(model.parameters()))
    for seed in range(steps):
        scaled_step(model, optimizer, scaler, seed)
    return model, optimizer


@pytest.mark.parametrize("method", FAMILY)
def test_a_scale_that_changes_makes_no_difference(method):
    """Scales are powers of two, so not even a bit."""
    changing = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    model, optimizer = run(method, changing)
    assert changing.get_scale() > 2.0**10
    plain, reference = run(method, torch.amp.GradScaler("cpu", enabled=False))
    assert_same(weights(model), weights(plain))
    assert_same(optimizer.memory.tensors("ema").values(), reference.memory.tensors("ema").values())


@pytest.mark.parametrize("overflow_in", [1, 2])
@pytest.mark.parametrize("method", FAMILY)
def test_an_overflow_loses_nothing(method, overflow_in):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    model, optimizer = run(method, scaler, steps=3)
    before = weights(model)
    averages = [m.clone() for m in optimizer.memory.tensors("ema").values()]
    scale = scaler.get_scale()
    scaled_step(model, optimizer, scaler, 3, overflow_in)
    if overflow_in == 2:  # the first gradient was good: the average took it in, the step is skipped
        assert_same(weights(model), before)
        assert scaler.get_scale() == scale / 2
    else:  # no perturbation, average untouched: a plain base step
        assert_same(optimizer.memory.tensors("ema").values(), averages)
    assert all(m.isfinite().all() for m in optimizer.memory.tensors("ema").values())
    scaled_step(model, optimizer, scaler, 4)
    assert all(w.isfinite().all() for w in weights(model))


def test_without_the_scaler_the_average_would_hold_scaled_gradients():
    """So that the tests above are able to fail."""
    model = network(torch.float32)
    optimizer = FriendlySAM(momentum(model.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x, y = batch(0, dtype=torch.float32)
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    scaled = next(model.parameters()).grad.clone()
    with optimizer.perturbed(scaler=scaler):
        pass
    m = next(iter(optimizer.memory.tensors("ema").values()))
    torch.testing.assert_close(m, 0.1 * scaled / 2**10)


@pytest.mark.parametrize("method", FAMILY)
def test_autocast_in_bfloat16_trains(method):
    model = network(torch.float32)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model)
    x, y = batch(0, size=64, dtype=torch.float32)

    def closure():
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(60)]
    assert losses[-1] < 0.8 * losses[0]
    assert {m.dtype for m in optimizer.memory.tensors("ema").values()} <= {torch.float32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", FAMILY)
def test_low_precision_weights_train_near_those_in_float32(method, dtype):
    def run(dtype):
        torch.manual_seed(0)
        model = network(torch.float32).to(dtype)
        optimizer = FAMILY[method](torch.optim.SGD(model.parameters(), lr=0.1), model=model)
        x, y = batch(0, size=64, dtype=dtype)

        def closure():
            loss = F.cross_entropy(model(x).float(), y)
            loss.backward()
            return loss

        return [optimizer.step(closure).item() for _ in range(30)]

    low, full = run(dtype), run(torch.float32)
    assert low[-1] < low[0]
    assert low[-1] == pytest.approx(full[-1], rel=0.05)


def test_parameters_of_several_dtypes_share_one_norm():
    a = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    b = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    optimizer = SAM(torch.optim.SGD([a, b], lr=0.1), 1.0)
    a.grad, b.grad = torch.full_like(a, 1.0), torch.full_like(b, 2.0)
    with optimizer.perturbed():
        torch.testing.assert_close(a.detach(), torch.full_like(a, 1 / 19**0.5))
        torch.testing.assert_close(b.detach(), torch.full_like(b, 2 / 19**0.5), rtol=1e-2, atol=0)
