"""Promise 14: one host synchronisation a step, no more memory than promised."""

import gc
import subprocess
import sys
import tracemalloc

import pytest
import torch
from family import FAMILY, closure_of, network
from torch.utils._python_dispatch import TorchDispatchMode

from friendly_sam import SAM, FriendlySAM


class Counts(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        self.calls[name] = self.calls.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("method", FAMILY)
def test_a_step_synchronises_with_the_host_at_most_once(method, scaled):
    model = network(torch.float32)
    optimizer = FAMILY[method](torch.optim.SGD(model.parameters(), lr=0.1), model=model, every=2)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    scaler.scale(torch.ones(()))  # creates the scale
    for seed in range(4):
        closure_of(model, seed)()
        with Counts() as counts:
            if optimizer.ascent_due:
                with optimizer.perturbed(scaler=scaler):
                    pass
            optimizer.step()
        assert counts.calls.get("aten::_local_scalar_dense", 0) <= 1
        optimizer.zero_grad()


def test_the_count_of_synchronisations_can_fail():
    with Counts() as counts:
        torch.ones(2).sum().item()
    assert counts.calls["aten::_local_scalar_dense"] == 1


def live_bytes():
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):  # not what torch.compile traces with
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.parametrize(("method", "copies"), [(SAM, 1.0), (FriendlySAM, 2.0)])
def test_between_the_passes_there_are_only_the_copies_that_were_promised(method, copies):
    parameters = [torch.nn.Parameter(torch.randn(300, 300)) for _ in range(5)]
    size = sum(p.nbytes for p in parameters)
    optimizer = method(torch.optim.SGD(parameters, lr=0.1))
    for _ in range(3):
        before = live_bytes()
        for p in parameters:
            p.grad = torch.randn_like(p)
        with optimizer.perturbed():
            between = live_bytes()
        optimizer.zero_grad()
    first = before  # with the averages and backups that are kept
    assert between - first <= 0.01 * size
    del optimizer
    gc.collect()
    assert first - live_bytes() == pytest.approx(copies * size, rel=0.01)


@pytest.mark.parametrize("method", ["SAM", "F-SAM", "F-ASAM", "F-SAM projection"])
def test_memory_does_not_grow_over_steps(method):
    model = network(torch.float32)
    optimizer = FAMILY[method](torch.optim.SGD(model.parameters(), lr=0.01), model=model)
    closure = closure_of(model, 0)

    def steps(count):
        for _ in range(count):
            optimizer.step(closure)
        gc.collect()

    steps(50)
    tensors = live_bytes()
    tracemalloc.start()
    try:
        steps(20)
        first = tracemalloc.get_traced_memory()[0]
        steps(300)
        assert tracemalloc.get_traced_memory()[0] - first < 20_000
    finally:
        tracemalloc.stop()
    assert live_bytes() <= tensors


IMPORTS = """
import sys, torch
before = {name.partition(".")[0] for name in sys.modules}
import friendly_sam, friendly_sam.compat
print(sorted({name.partition(".")[0] for name in sys.modules} - before))
"""


def test_importing_the_core_imports_torch_only():
    run = subprocess.run(
        [sys.executable, "-c", IMPORTS], check=True, capture_output=True, text=True
    )
    assert run.stdout.strip() == "['friendly_sam']"


IMPORT_TIME = """
import time, torch
start = time.perf_counter()
import friendly_sam
print(time.perf_counter() - start)
"""


def test_importing_the_core_is_quick():
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", IMPORT_TIME], check=True, capture_output=True
            ).stdout
        )
        for _ in range(3)
    ]
    assert min(times) < 0.15
