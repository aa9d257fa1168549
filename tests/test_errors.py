"""Promise 15: one line that names a bad argument, its value and what is allowed."""

import pytest
import torch
from family import FAMILY, momentum, network
from torch import nn

from friendly_sam import (
    ASAM,
    SAM,
    BatchNoise,
    DiagonalFisher,
    Euclidean,
    Every,
    FisherSAM,
    FriendlySAM,
    Gradient,
    ParameterScaled,
    RadiusSchedule,
    Residual,
    SharpnessAware,
    compat,
)

NAN, INF = float("nan"), float("inf")


def base():
    return torch.optim.SGD(network().parameters(), lr=0.1)


def sam():
    return SAM(base())


BAD = [
    # the radius
    (lambda: SAM(base(), -0.1), ValueError, r"rho must be a finite number >= 0, not -0.1"),
    (lambda: SAM(base(), NAN), ValueError, r"rho must be a finite number >= 0, not nan"),
    (lambda: SAM(base(), INF), ValueError, r"rho must be a finite number >= 0, not inf"),
    (lambda: SAM(base(), "0.1"), TypeError, r"rho must be a finite number >= 0, not '0.1'"),
    (lambda: SAM(base(), True), TypeError, r"rho must be a finite number >= 0, not True"),
    (
        lambda: SAM(torch.optim.SGD([{"params": network().parameters(), "rho": -1}], lr=0.1)),
        ValueError,
        r'param_groups\[0\]\["rho"\] must be a finite number >= 0, not -1',
    ),
    # sigma, decay, variant, eta
    (lambda: FriendlySAM(base(), sigma=NAN), ValueError, r"sigma must be a finite number, not nan"),
    (lambda: FriendlySAM(base(), sigma="cos"), ValueError, r'"projection", not \'cos\''),
    (
        lambda: FriendlySAM(base(), sigma=None),
        TypeError,
        r"sigma must be a finite number, not None",
    ),
    (
        lambda: FriendlySAM(base(), decay=1.0),
        ValueError,
        r"decay must be a finite number >= 0 and < 1, not 1.0",
    ),
    (
        lambda: FriendlySAM(base(), decay=-0.1),
        ValueError,
        r"decay must be .* >= 0 and < 1, not -0.1",
    ),
    (
        lambda: FriendlySAM(base(), decay=NAN),
        ValueError,
        r"decay must be a finite number >= 0 and < 1, not nan",
    ),
    (lambda: FriendlySAM(base(), variant="adam"), ValueError, r"variant must be .* not \'adam\'"),
    (lambda: BatchNoise(dtype=torch.int8), TypeError, r"dtype must be a floating-point .*int8"),
    (lambda: ASAM(base(), eta=-1.0), ValueError, r"eta must be a finite number >= 0, not -1.0"),
    (lambda: FisherSAM(base(), eta=NAN), ValueError, r"eta must be a finite number >= 0, not nan"),
    (lambda: DiagonalFisher("1"), TypeError, r"eta must be a finite number >= 0, not '1'"),
    (lambda: ParameterScaled(only="weight"), TypeError, r"only must be a predicate .* 'weight'"),
    (lambda: Residual(3), TypeError, r"reference must be a callable, not 3"),
    # every
    (lambda: SAM(base(), when=Every(0)), ValueError, r"k must be an integer >= 1, not 0"),
    (lambda: SAM(base(), when=Every(2.5)), TypeError, r"k must be an integer >= 1, not 2.5"),
    # base, model, parts
    (lambda: SAM(torch.optim.SGD), TypeError, r"base must be an optimizer instance such as SGD\("),
    (lambda: SAM(network().parameters()), TypeError, r"base must be a torch.optim.Optimizer, not"),
    (lambda: SAM(sam()), TypeError, r"base must be a plain optimizer, not a SAM"),
    (
        lambda: SAM(torch.optim.LBFGS(network().parameters())),
        TypeError,
        r"base must be able to step without a closure, which LBFGS cannot",
    ),
    (lambda: SAM(base(), model=network()), ValueError, r"Sequential given shares no parameter"),
    (lambda: SAM(base(), model="net"), TypeError, r"model must be a torch.nn.Module or None"),
    (
        lambda: SharpnessAware(base(), 0.1, direction=Euclidean(), geometry=Euclidean()),
        TypeError,
        r"direction must be a friendly_sam Direction, not Euclidean",
    ),
    (
        lambda: SharpnessAware(base(), 0.1, direction=Gradient(), geometry=Gradient()),
        TypeError,
        r"geometry must be a friendly_sam Geometry, not Gradient",
    ),
    (
        lambda: SAM(base(), sync_ascent=False),
        ValueError,
        r"DistributedDataParallel module, not None",
    ),
    (lambda: ASAM(base(), only=str.isupper), ValueError, r"4 of them have none: pass model="),
    # calls
    (lambda: sam().step(ascent=lambda: None), ValueError, r"ascent was given without a closure"),
    (
        lambda: RadiusSchedule(base(), float),
        TypeError,
        r"optimizer must be a SharpnessAware, not SGD",
    ),
    (
        lambda: RadiusSchedule(sam(), 0.1),
        TypeError,
        r"factor must be a function of the step, not 0.1",
    ),
    (lambda: RadiusSchedule(sam(), lambda t: -1), ValueError, r"factor\(0\) must be .* not -1"),
    (
        lambda: RadiusSchedule.linear(sam(), factor=-1, steps=3),
        ValueError,
        r"factor must be a finite number >= 0, not -1",
    ),
    (
        lambda: RadiusSchedule.cosine(sam(), factor=0, steps=0),
        ValueError,
        r"steps must be an integer >= 1, not 0",
    ),
    (
        lambda: sam().add_param_group({"params": [nn.Parameter(torch.ones(1))], "rho": -2}),
        ValueError,
        r'param_group\["rho"\] must be a finite number >= 0, not -2',
    ),
    (
        lambda: compat.SAM(network().parameters(), "SGD"),
        TypeError,
        r"base_optimizer must be .*'SGD'",
    ),
    (lambda: compat.SAM([], torch.optim.SGD, lr=0.1), ValueError, r"empty parameter list"),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD, ids=[message for *_, message in BAD])
def test_a_bad_argument_is_refused(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", FAMILY)
def test_a_bad_radius_that_is_set_later_is_refused_before_any_work(method):
    model = network()
    optimizer = FAMILY[method](momentum(model.parameters()))
    optimizer.param_groups[0]["rho"] = -1.0
    called = []
    with pytest.raises(ValueError, match=r'"rho" of a parameter group must be .* not -1.0'):
        optimizer.step(lambda: called.append(True))
    assert not called


def test_a_refused_construction_leaves_the_base_as_it_was():
    optimizer = base()
    before = [dict(group) for group in optimizer.param_groups]
    for options in ({"rho": -1.0}, {"when": 3}, {"model": network()}, {"only": str.isupper}):
        with pytest.raises((ValueError, TypeError)):
            ASAM(optimizer, **options)
    assert [dict(group) for group in optimizer.param_groups] == before
