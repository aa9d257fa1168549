"""Promise 12 and the rest of a training loop: schedulers, clipping, accumulation, every, ascent."""

import copy
import warnings

import pytest
import torch
from family import BASES, FAMILY, assert_same, batch, closure_of, momentum, network, train, weights
from reference import Reference
from torch.nn import functional as F
from torch.optim import lr_scheduler

from friendly_sam import SAM, Every, FriendlySAM, RadiusSchedule

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=9),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "LinearLR then StepLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.StepLR(o, 2)], [3]
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter")  # SequentialLR of torch 2.6 gives it
@pytest.mark.parametrize("base", ["SGD with momentum", "AdamW"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_any_scheduler_drives_the_wrapper_as_it_drives_the_base(scheduler, base):
    def rates(wrap):
        model = network()
        optimizer = wrap(BASES[base](model.parameters()))
        schedule = SCHEDULERS[scheduler](optimizer)
        seen = []
        for seed in range(8):
            closure = closure_of(model, seed)
            if wrap is SAM:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
            schedule.step()
            group = optimizer.param_groups[0]
            seen.append((group["lr"], group.get("momentum"), group.get("betas")))
        return seen

    assert rates(SAM) == rates(lambda base: base)


def test_clipping_touches_the_descent_gradient_only():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()), 0.1)
    closure_of(model, 0)()
    first = [p.grad.clone() for p in model.parameters()]
    with optimizer.perturbed():
        closure_of(model, 0)()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    for m, g in zip(optimizer.memory.tensors("ema").values(), first, strict=True):
        torch.testing.assert_close(m, 0.1 * g)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("SAM", {}),
        ("F-SAM", {"sigma": 1.0}),
        ("F-ASAM", {"sigma": 1.0, "geometry": "parameter", "eta": 0.01}),
    ],
)
def test_a_closure_over_micro_batches_is_one_large_batch(method, settings):
    model = network()
    optimizer = FAMILY[method](momentum(model.parameters()), 0.1, model=model)
    other = network()
    other.load_state_dict(model.state_dict())
    base, reference = momentum(other.parameters()), Reference(0.1, **settings)
    parameters = list(other.parameters())
    for seed in range(4):
        x, y = batch(seed, size=16)

        def closure(x=x, y=y):
            for a, b in zip(x.chunk(4), y.chunk(4), strict=True):
                (F.cross_entropy(model(a), b) / 4).backward()

        optimizer.step(closure)

        gradients = torch.autograd.grad(F.cross_entropy(other(x), y), parameters)
        before = weights(other)
        with torch.no_grad():
            for p, eps in zip(parameters, reference.perturbation(before, gradients), strict=True):
                p.add_(eps)
        gradients = torch.autograd.grad(F.cross_entropy(other(x), y), parameters)
        with torch.no_grad():
            for p, w, g in zip(parameters, before, gradients, strict=True):
                p.copy_(w)
                p.grad = g
        base.step()
    for a, b in zip(weights(model), weights(other), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_the_loss_that_step_returns_is_the_one_at_w():
    model = network()
    optimizer = SAM(momentum(model.parameters()), 0.5)
    x, y = batch(0)
    at_w = F.cross_entropy(model(x), y).item()
    assert optimizer.step(closure_of(model, 0)).item() == at_w


def test_every_ascends_on_steps_0_k_2k_and_the_average_takes_in_the_others():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()), 0.1, when=Every(3))
    passes, due = [], []
    m = [torch.zeros_like(p) for p in model.parameters()]
    for seed in range(7):
        calls = []
        closure = closure_of(model, seed)

        def counted(closure=closure, calls=calls):
            loss = closure()
            calls.append([p.grad.clone() for p in model.parameters()])
            return loss

        due.append(optimizer.ascent_due)
        optimizer.step(counted)
        passes.append(len(calls))
        m = [a.lerp(g, 1 - 0.9) for a, g in zip(m, calls[0], strict=True)]
        assert_same(optimizer.memory.tensors("ema").values(), m)
    assert passes == [2, 1, 1, 2, 1, 1, 2]
    assert due == [True, False, False, True, False, False, True]


def test_another_ascent_climbs_and_the_closure_descends():
    """SAM-db, SAM-full and sub-batch ascent: ε from one closure, the step from the other."""
    model = network()
    optimizer = SAM(torch.optim.SGD(model.parameters(), lr=0.1), 0.2)
    before = weights(model)
    closure_of(model, 5)()
    g = [p.grad.clone() for p in model.parameters()]
    norm = torch.cat([x.flatten() for x in g]).norm()
    inside = []

    def descent():
        inside.extend(weights(model))
        return closure_of(model, 1)()

    at_w = optimizer.step(descent, ascent=closure_of(model, 5))
    for w, x, g in zip(before, inside, g, strict=True):
        torch.testing.assert_close(x, w + 0.2 * g / norm, rtol=0, atol=1e-14)
    other = network()
    other.load_state_dict(dict(zip(other.state_dict(), before, strict=True)))
    x, y = batch(5)
    assert at_w.item() == F.cross_entropy(other(x), y).item()


def test_a_bare_step_that_switches_the_method_off_warns_once():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()))
    closure_of(model, 0)()
    with pytest.warns(UserWarning, match="plain step of the base optimizer"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def test_bare_steps_that_are_meant_do_not_warn():
    model = network()
    optimizer = FriendlySAM(momentum(model.parameters()), when=Every(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()  # no gradients
        for seed in range(4):
            closure_of(model, seed)()
            if optimizer.ascent_due:
                with optimizer.perturbed():
                    closure_of(model, seed)()
            optimizer.step()
            optimizer.zero_grad()
        optimizer.param_groups[0]["rho"] = 0.0
        closure_of(model, 4)()
        optimizer.step()


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (RadiusSchedule.constant, [0.2, 0.2, 0.2, 0.2, 0.2]),
        (RadiusSchedule.inverse_sqrt, [0.2 / t**0.5 for t in range(1, 6)]),
        (lambda o: RadiusSchedule.linear(o, factor=0.5, steps=2), [0.2, 0.15, 0.1, 0.1, 0.1]),
        (lambda o: RadiusSchedule.cosine(o, factor=0.0, steps=2), [0.2, 0.1, 0.0, 0.0, 0.0]),
    ],
)
def test_radius_schedules(schedule, expected):
    model = network()
    optimizer = SAM(momentum(model.parameters()), 0.2)
    schedule_ = schedule(optimizer)
    seen = []
    for seed in range(5):
        seen.append(optimizer.param_groups[0]["rho"])
        optimizer.step(closure_of(model, seed))
        schedule_.step()
    assert seen == pytest.approx(expected, abs=1e-15)


def test_a_radius_schedule_resumes():
    def start():
        torch.manual_seed(0)
        model = network()
        optimizer = SAM(momentum(model.parameters()), 0.2)
        return model, optimizer, RadiusSchedule.cosine(optimizer, factor=0.1, steps=10)

    def go_on(model, optimizer, schedule, steps):
        for seed in steps:
            optimizer.step(closure_of(model, seed))
            schedule.step()

    run = start()
    go_on(*run, range(4))
    saved = copy.deepcopy([x.state_dict() for x in run])
    go_on(*run, range(4, 8))
    other = start()
    for part, state in zip(other, saved, strict=True):
        part.load_state_dict(state)
    go_on(*other, range(4, 8))
    assert_same(weights(other[0]), weights(run[0]))
    assert other[1].param_groups[0]["rho"] == run[1].param_groups[0]["rho"]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p),
        lambda p: torch.optim.RMSprop(p),
        lambda p: torch.optim.Adagrad(p),
        lambda p: torch.optim.NAdam(p),
        lambda p: torch.optim.RAdam(p),
        lambda p: torch.optim.Adamax(p),
        lambda p: torch.optim.ASGD(p),
        lambda p: torch.optim.Rprop(p),
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.AdamW(p, amsgrad=True, foreach=False),
        lambda p: torch.optim.Adadelta(p),
    ],
)
def test_any_base_optimizer_works_from_the_first_step(make):
    model = network(torch.float32)  # torch casts some states of NAdam to a wider parameter's dtype
    optimizer = FriendlySAM(make(model.parameters()), model=model)
    losses = train(model, optimizer, 3)
    assert all(loss == loss for loss in losses)
    other = network(torch.float32)
    again = FriendlySAM(make(other.parameters()), model=other)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch's own would be shared
    train(model, optimizer, 2, start=3)
    train(other, again, 2, start=3)
    assert_same(weights(other), weights(model))
