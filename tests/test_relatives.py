"""The relatives of SAM: reductions, closures counted, what a loop does by hand."""

import copy

import pytest
import torch
from family import (
    BASES,
    FAMILY,
    ONE_PASS,
    assert_same,
    closure_of,
    momentum,
    network,
    train,
    weights,
)

from friendly_sam import (
    GSAM,
    MSAM,
    SAM,
    WSAM,
    Average,
    BatchNoise,
    Every,
    From,
    Gradient,
    LargeGradients,
    LookSAM,
    Momentum,
    Randomly,
    SharpnessAware,
    Stale,
    SurrogateGap,
)


def run(build, base="SGD with momentum", steps=8):
    torch.manual_seed(0)
    model = network(batchnorm=True)
    optimizer = build(BASES[base](model.parameters()), model)
    train(model, optimizer, steps)
    return weights(model)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    "build",
    [
        lambda b, m: GSAM(b, 0.1, alpha=0.0, model=m),
        lambda b, m: WSAM(b, 0.1, gamma=0.5, model=m),
        lambda b, m: LookSAM(b, 0.1, every=1, model=m),
        lambda b, m: SharpnessAware(b, 0.1, direction=Average(theta=1.0), model=m),
        lambda b, m: SAM(b, 0.1, when=From(0), model=m),
        lambda b, m: SAM(b, 0.1, when=Randomly(1.0), model=m),
    ],
    ids=["alpha 0", "gamma 1/2", "LookSAM every step", "theta 1", "from step 0", "probability 1"],
)
def test_special_settings_are_sam_bit_for_bit(build, base):
    assert_same(run(build, base), run(lambda b, m: SAM(b, 0.1, model=m), base))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    "build",
    [
        lambda b, m: WSAM(b, 0.1, gamma=0.0, model=m),
        lambda b, m: SAM(b, 0.1, when=From(100), model=m),
        lambda b, m: SAM(b, 0.1, when=Randomly(0.0), model=m),
    ],
    ids=["gamma 0", "late", "probability 0"],
)
def test_special_settings_are_the_base_optimizer(build, base):
    plain = run(lambda b, m: SAM(b, 0.0, model=m), base)
    for a, b in zip(run(build, base), plain, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-15)


CALLS = {
    "SAM": (lambda b: SAM(b), 40),
    "LookSAM, k = 5": (lambda b: LookSAM(b, every=5), 24),
    "every 10th": (lambda b: SAM(b, when=Every(10)), 22),
    "from step 15": (lambda b: SAM(b, when=From(15)), 25),
    **{name: (make, 20) for name, make in ONE_PASS.items()},
}


@pytest.mark.parametrize("name", CALLS)
def test_the_closure_is_called_as_often_as_the_method_needs_it(name):
    make, expected = CALLS[name]
    model = network()
    optimizer, calls = make(momentum(model.parameters())), []
    for seed in range(20):
        closure = closure_of(model, seed)
        optimizer.step(lambda closure=closure: (calls.append(1), closure())[1])
    assert len(calls) == expected


@pytest.mark.parametrize("name", ONE_PASS)
def test_one_pass_by_hand_is_one_pass_by_closure(name):
    results = []
    for by_hand in (False, True):
        torch.manual_seed(0)
        model = network(batchnorm=True)
        optimizer = ONE_PASS[name](momentum(model.parameters()), model=model)
        for seed in range(6):
            if by_hand:
                with optimizer.perturbed():
                    closure_of(model, seed)()
                optimizer.step()
                optimizer.zero_grad()
            else:
                optimizer.step(closure_of(model, seed))
        results.append(weights(model) + [b.clone() for b in model.buffers()])
    assert_same(*results)


@pytest.mark.parametrize("name", ONE_PASS)
def test_one_pass_methods_resume_bit_for_bit_and_come_back(name):
    def start():
        torch.manual_seed(0)
        model = network()
        return model, ONE_PASS[name](momentum(model.parameters()))

    model, optimizer = start()
    train(model, optimizer, 4)
    saved = weights(model), copy.deepcopy(optimizer.state_dict())
    before = weights(model)
    with pytest.raises(ZeroDivisionError), optimizer.perturbed():
        assert any(not torch.equal(a, b) for a, b in zip(weights(model), before, strict=True))
        raise ZeroDivisionError
    assert_same(weights(model), before)
    other, resumed = start()
    with torch.no_grad():
        for p, w in zip(other.parameters(), saved[0], strict=True):
            p.copy_(w)
    resumed.load_state_dict(saved[1])
    fresh, uninterrupted = start()
    train(fresh, uninterrupted, 8)
    train(other, resumed, 4, start=4)
    assert_same(weights(other), weights(fresh))


REMEMBERING = {
    "LookSAM": lambda base: LookSAM(base, every=3),
    "large gradients": lambda base: SAM(base, when=LargeGradients(decay=0.6)),
}


@pytest.mark.parametrize("name", REMEMBERING)
def test_what_looksam_and_a_policy_remember_resumes_bit_for_bit(name):
    def start():
        torch.manual_seed(0)
        model = network()
        return model, REMEMBERING[name](momentum(model.parameters()))

    model, optimizer = start()
    train(model, optimizer, 4)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, 8, start=4)
    other, resumed = start()
    for part, state in zip((other, resumed), saved, strict=True):
        part.load_state_dict(state)
    train(other, resumed, 8, start=4)
    assert_same(weights(other), weights(model))


def test_a_base_without_momentum_is_refused_for_msam():
    with pytest.raises(ValueError, match="group 0 of this SGD has none"):
        MSAM(torch.optim.SGD(network().parameters(), lr=0.1))
    MSAM(torch.optim.AdamW(network().parameters()))


def test_large_gradients_are_perturbed_and_small_ones_are_not():
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = SAM(torch.optim.SGD([parameter], lr=0.0), when=LargeGradients(c=0.0))
    due = []
    for size in (1.0, 5.0, 0.1, 0.1, 9.0):

        def closure(size=size):
            parameter.grad = torch.full((3,), size)

        optimizer.step(closure)
        due.append(optimizer.last.ascended)
    assert due == [True, True, False, False, True]
    assert optimizer.param_groups[0]["gradient_mean"] > 0


def test_large_gradients_are_those_some_deviations_above_their_mean():
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = SAM(torch.optim.SGD([parameter], lr=0.0), when=LargeGradients(c=1.0, decay=0.6))
    mean, variance, expected, due = None, 0.0, [], []
    for size in (1.0, 2.0, 0.5, 3.0, 3.0, 1.0, 6.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0):
        squared = 4 * size**2
        mean = squared if mean is None else 0.6 * mean + 0.4 * squared
        variance = 0.6 * variance + 0.4 * (squared - mean) ** 2
        expected.append(squared >= mean + variance**0.5)

        def closure(size=size):
            parameter.grad = torch.full((4,), size)

        optimizer.step(closure)
        due.append(optimizer.last.ascended)
    assert due == expected
    assert 3 < sum(due) < 10


def test_random_steps_are_the_same_on_every_process_and_after_a_resume():
    first = [Randomly(0.3, seed=7).due(step) for step in range(50)]
    assert first == [Randomly(0.3, seed=7).due(step) for step in range(50)]
    assert first != [Randomly(0.3, seed=8).due(step) for step in range(50)]


def test_any_combination_works():
    for direction in (Gradient(), BatchNoise(), Average(), Momentum(), Stale(BatchNoise())):
        for when in (Every(2), Randomly(0.5), LargeGradients()):
            model = network()
            optimizer = SharpnessAware(
                momentum(model.parameters()),
                0.05,
                direction=direction,
                descent=SurrogateGap(),
                when=when,
                model=model,
            )
            before = weights(model)
            losses = train(model, optimizer, 6)
            assert all(loss == loss for loss in losses)
            assert any(not torch.equal(a, b) for a, b in zip(weights(model), before, strict=True))


def test_what_a_loop_can_read_after_a_step():
    model = network()
    optimizer = FAMILY["SAM"](momentum(model.parameters()), 0.1, when=Every(2))
    loss = optimizer.step(closure_of(model, 0))
    assert optimizer.last.ascended
    assert optimizer.last.perturbation_norm == pytest.approx(0.1)
    assert optimizer.last.loss.item() == loss.item()
    assert optimizer.last.perturbed_loss.item() > loss.item()
    optimizer.step(closure_of(model, 1))
    assert not optimizer.last.ascended
    assert optimizer.last.perturbation_norm == 0


def test_what_is_called_before_the_step_sees_the_descent_gradient_once():
    model = network()
    optimizer = FAMILY["F-SAM"](momentum(model.parameters()), 0.1, model=model)
    seen = []

    def clip():
        seen.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3).item())

    ema = None
    for seed in range(3):
        optimizer.step(closure_of(model, seed), before_step=clip)
        ema = [m.norm().item() for m in optimizer.memory.tensors("ema").values()]
    assert len(seen) == 3
    assert max(ema) > 1e-3  # of unclipped gradients
