"""Promise 14 on accelerators, counted on fake CUDA tensors: no wait, few launches, small
temporaries, several devices. Nothing here needs an accelerator."""

import pytest
import torch
from family import FAMILY
from torch.nn import Parameter

from friendly_sam import Every
from friendly_sam.lab.bench.device import OPERATIONS
from friendly_sam.lab.bench.fake_step import (
    base_of,
    count,
    fake_parameters,
    give_gradients,
    promised,
    step_of,
)
from friendly_sam.lab.bench.shapes import shapes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TEMPORARIES = 0.1


def counted(method, network="mlp", *, dtype=torch.float32, devices=("cuda:0",)):
    """Count the second step, on which every method ascends."""
    with fake_parameters(shapes(network), dtype=dtype, devices=devices) as parameters:
        optimizer = FAMILY[method](base_of(parameters))
        optimizer.when = Every(1)
        return count(step_of(optimizer), parameters), optimizer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", FAMILY)
def test_a_step_makes_nobody_wait_and_takes_the_promised_memory(method, dtype):
    found, optimizer = counted(method, "resnet18", dtype=DTYPES[dtype])
    assert found.waits == ()
    assert found.slow == {}
    assert found.launches < 2 * len(shapes("resnet18"))
    assert promised(optimizer) - 0.01 < found.copies < promised(optimizer) + TEMPORARIES
    bound = OPERATIONS["resnet18"].get(method)
    assert bound is None or found.operations <= bound


@pytest.mark.parametrize("method", OPERATIONS["vit_s"])
def test_a_step_of_vit_s_has_few_operations(method):
    found, _ = counted(method, "vit_s")
    assert found.operations <= OPERATIONS["vit_s"][method]
    assert found.waits == ()


@pytest.mark.parametrize("method", FAMILY)
def test_float16_takes_the_fast_path(method):
    found, _ = counted(method, dtype=torch.float16)
    assert found.slow == {}
    assert found.waits == ()


@pytest.mark.parametrize("method", FAMILY)
def test_a_skipped_step_makes_nobody_wait(method):
    with fake_parameters(shapes("mlp")) as parameters:
        optimizer = FAMILY[method](base_of(parameters))
        optimizer.when = Every(2)
        found = count(step_of(optimizer), parameters, warm_up=1)
    assert found.waits == ()
    assert found.slow == {}


def scaled_step(optimizer, parameters, scaler):
    base_alone = isinstance(optimizer, torch.optim.SGD)

    def step():
        scaler.scale(torch.ones((), device=parameters[0].device))  # makes the scale
        if base_alone or optimizer.direction.starts_from == "gradient":
            give_gradients(parameters)
        if not base_alone:
            with optimizer.perturbed(scaler=scaler):
                give_gradients(parameters)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize("method", FAMILY)
def test_with_a_scaler_only_the_scaler_waits(method):
    waits = []
    for make in (lambda base: base, FAMILY[method]):
        with fake_parameters(shapes("mlp")) as parameters:
            # GradScaler("cuda") switches itself off without CUDA; the scale of any other lies
            # where the first loss does.
            scaler = torch.amp.GradScaler("cpu")
            optimizer = make(base_of(parameters))
            optimizer.when = Every(1)
            step = scaled_step(optimizer, parameters, scaler)
            waits.append(count(step, parameters, number=0.0).waits)
    assert len(waits[0]) == 1
    assert waits[1] == waits[0]


@pytest.mark.parametrize("method", FAMILY)
def test_two_accelerators_in_one_model(method):
    found, _ = counted(method, devices=("cuda:0", "cuda:1"))
    assert found.waits == ()
    assert found.slow == {}


@pytest.mark.parametrize("devices", [("cuda:0", "cpu"), ("cpu", "cuda:0")])
@pytest.mark.parametrize("method", FAMILY)
def test_beside_the_cpu_each_sum_over_all_parameters_is_one_wait(method, devices):
    found, optimizer = counted(method, devices=devices)
    sums = 1 + optimizer.direction.keeps_ema + optimizer.descent.needs_gradient
    assert len(found.waits) <= sums
    assert found.races == ()
    assert found.slow == {}


LAYOUTS = {
    "contiguous": lambda w: torch.empty(w.shape, device=w.device),
    "expanded": lambda w: torch.empty((), device=w.device).expand(w.shape),
    "transposed": lambda w: torch.empty(w.shape[::-1], device=w.device).permute(3, 2, 1, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", FAMILY)
def test_gradients_that_lie_otherwise_than_their_weights_are_taken(method, layout, monkeypatch):
    def give(parameters):
        for parameter in parameters:
            parameter.grad = LAYOUTS[layout](parameter)

    monkeypatch.setattr("friendly_sam.lab.bench.fake_step.give_gradients", give)
    with fake_parameters([]) as parameters:
        for _ in range(3):
            weight = torch.empty(8, 4, 3, 3, device="cuda:0")
            parameters.append(Parameter(weight.to(memory_format=torch.channels_last)))
        optimizer = FAMILY[method](base_of(parameters))
        assert count(step_of(optimizer), parameters).waits == ()


# -- the counter can fail ---------------------------------------------------------------------


def broken(what):
    """Count a step of SGD that does something more."""
    with fake_parameters(shapes("mlp")) as parameters:
        base = base_of(parameters)

        def step():
            give_gradients(parameters)
            what(parameters)
            base.step()
            base.zero_grad()

        return count(step, parameters)


WAITS = {
    "item": lambda p: p[0].sum().item(),
    "bool": lambda p: bool(p[0].isfinite().all()),
    "float": lambda p: float(p[0].sum()),
    "equal": lambda p: torch.equal(p[0], p[0]),
    "nonzero": lambda p: p[0].nonzero(),
    "mask": lambda p: p[1][p[1] > 0],
    "to the host": lambda p: p[0].to("cpu"),
    "from the host": lambda p: torch.zeros(()).to("cuda"),
    "a number to the device": lambda p: torch.tensor(0.5, device="cuda"),
    "copy": lambda p: p[0].copy_(torch.zeros(p[0].shape)),
    "foreach copy": lambda p: torch._foreach_copy_([p[0].detach()], [torch.zeros(p[0].shape)]),
}


@pytest.mark.parametrize("what", WAITS)
def test_a_step_that_waits_is_noticed(what):
    assert len(broken(WAITS[what]).waits) == 1


def test_a_step_that_does_not_wait_is_not_blamed():
    def harmless(p):
        torch.full((), 0.5, device="cuda")
        torch.zeros(()).to("cuda", non_blocking=True)
        p[0].to("cuda:1")
        p[1][0], p[1][1:3]
        torch.zeros(3).sum().item()

    assert broken(harmless).waits == ()


def test_a_copy_for_which_nobody_waits_is_noticed():
    found = broken(lambda p: p[0].to("cpu", non_blocking=True))
    assert len(found.races) == 1
    assert found.waits == ()


def test_the_slow_path_is_noticed():
    slow = broken(lambda p: torch._foreach_mul(p, torch.ones((), device="cuda").double())).slow
    assert "the scalar is float64, not float32" in slow["_foreach_mul.Tensor"]
    slow = broken(lambda p: torch._foreach_add(p, [x.double() for x in p])).slow
    assert "dtypes differ" in slow["_foreach_add.List"]


def test_memory_is_noticed():
    assert broken(lambda p: [torch.empty_like(x) for x in p]).copies == pytest.approx(1)
    assert broken(lambda p: torch.empty_like(p[0])).copies < 0.5
    assert broken(lambda p: None).copies == pytest.approx(0)


def test_what_cuda_refuses_is_refused():
    def strides_differ(p):
        torch._fused_sgd_(
            [p[0].detach()], [torch.empty(p[0].shape[::-1], device="cuda").t()], [],
            weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False,
            maximize=False, is_first_step=False,
        )  # fmt: skip

    with pytest.raises(RuntimeError, match="CUDA refuses _fused_sgd_ here"):
        broken(strides_differ)
