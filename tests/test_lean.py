"""Promise 14: no more memory than promised, and torch alone; the device is in its own file."""

import gc
import subprocess
import sys
import tracemalloc

import pytest
import torch
from family import FAMILY, closure_of, network
from torch.utils._python_dispatch import TorchDispatchMode

from friendly_sam import SAM, FriendlySAM
from friendly_sam._machinery.blocks import FEW_OPERATIONS, MANY_OPERATIONS, Slot, gather

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


def live_bytes():
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) not in (torch.Tensor, torch.nn.Parameter):  # torch.compile's are others
            continue
        if thing.layout == torch.strided:
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


@pytest.mark.parametrize("many", [False, True])
def test_blocks_are_even_and_few(many):
    limit = MANY_OPERATIONS if many else FEW_OPERATIONS
    sizes = [int(limit * share) for share in (1.1, 0.9, 0.4, 4.5, 0.01, 0.01)]
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    slots = [Slot(parameter, torch.zeros_like(parameter)) for parameter in parameters]
    found = [[len(piece) for piece in block.w] for block in gather(slots, many=many)]
    assert found[:2] == [sizes[:1], sizes[1:3]]  # cut, 1.1 would leave a block of 0.1
    even = sizes[3] // 4
    assert found[2:] == [[even], [even], [even], [even, *sizes[4:]]]


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
start = time.process_time()
import friendly_sam

print(time.process_time() - start)
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


class Sums(TorchDispatchMode):
    """Counts the passes over a tensor that add something up."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket in (torch.ops.aten.dot, torch.ops.aten._foreach_norm)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("method", "sums"),
    [
        ("SAM", 1),  # ||g||², which is ||d||²
        ("ASAM", 2),  # ||T d||² and ||T² d||²
        ("FisherSAM", 2),
        ("VaSSO", 2),  # ||g||² and ||m||²
        ("F-SAM", 2),  # ||g||² and ||d||²
        ("F-ASAM", 4),  # those and ASAM's
    ],
)
def test_on_a_cpu_nothing_is_added_up_that_nobody_needs(method, sums):
    parameter = torch.nn.Parameter(torch.randn(128, 128))
    optimizer = FAMILY[method](torch.optim.SGD([parameter], lr=0.1))
    for _ in range(2):
        parameter.grad = torch.randn_like(parameter)
        with Sums() as found, optimizer.perturbed():
            pass
        assert found.count == sums
        optimizer.step()


class Passes(TorchDispatchMode):
    """Notes the operations that go over all elements."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name == "dot" or name.startswith("_foreach_"):
            self.names.append(name.removeprefix("_foreach_"))
        return function(*args, **(kwargs or {}))


THERE_AND_BACK = ["copy_", "add_", "copy_"]  # w is kept, w + ε, and w again


@pytest.mark.parametrize(
    ("method", "passes"),
    [
        ("SAM", ["dot"]),
        ("ASAM", ["abs", "add_", "mul_", "dot", "mul_", "dot"]),
        ("F-SAM", ["dot", "lerp_", "sub_", "dot"]),
    ],
)
def test_on_a_cpu_no_operation_goes_over_memory_in_vain(method, passes):
    parameter = torch.nn.Parameter(torch.randn(128, 128))
    optimizer = FAMILY[method](torch.optim.SGD([parameter], lr=0.1))
    for _ in range(2):
        parameter.grad = torch.randn_like(parameter)
        with Passes() as found, optimizer.perturbed():
            pass
        assert found.names == passes + THERE_AND_BACK
        optimizer.step()
