"""`fused=True`: the same results within rounding, or the ordinary path and a warning."""

import gc
import os
import subprocess
import sys
import warnings

import pytest
import torch
from family import FAMILY, assert_same, momentum, weights
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from friendly_sam import (
    SAM,
    BatchNoise,
    Euclidean,
    FriendlySAM,
    ParameterScaled,
    SharpnessAware,
    fused,
)
from friendly_sam.blocks import WIDTH
from friendly_sam.fused import LEAST, TOGETHER, Kernels
from friendly_sam.geometries import Geometry

MANY = TOGETHER[0] + sum(TOGETHER)
"""Tensors with which every kind of call is made, the largest twice."""


def network(dtype, memory_format=torch.contiguous_format):
    """Two tensors for kernels, one of them with a rest that fills no row, and small ones."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 128, 3), nn.Tanh(), nn.Conv2d(128, 65, 3), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(65 * 16, 70), nn.Tanh(), nn.Linear(70, 3))
    sizes = [p.numel() for p in model.parameters() if p.numel() >= LEAST]
    assert len(sizes) == 2
    assert any(size % WIDTH for size in sizes)
    return model.to(dtype, memory_format=memory_format)


def closure_of(model, seed, dtype, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 3, 8, 8, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randint(3, (4,), generator=generator)

    def closure():
        loss = F.cross_entropy(model(x), y)
        (loss * scale).backward()
        return loss

    return closure


def trained(method, dtype=torch.float64, memory_format=torch.contiguous_format, **options):
    model = network(dtype, memory_format)
    optimizer = FAMILY[method](momentum(model.parameters()), **options)
    for seed in range(4):
        optimizer.step(closure_of(model, seed, dtype))
    return model, optimizer


@pytest.fixture
def taken(monkeypatch):
    """Count the tensors that went through kernels."""
    counted = []
    move = Kernels.move

    def counting(self, block, *arguments):
        counted.extend(block.weights)
        move(self, block, *arguments)

    monkeypatch.setattr(Kernels, "move", counting)
    return counted


@pytest.fixture
def only_tried_kernels(monkeypatch):
    """A context in which a compilation is an error, but in a trial."""
    make = Kernels._make

    def trial(*arguments):
        with torch.compiler.set_stance("default"):
            return make(*arguments)

    monkeypatch.setattr(Kernels, "_make", trial)
    return lambda: torch.compiler.set_stance("fail_on_recompile")


@pytest.mark.parametrize(
    ("method", "steps"),
    {"F-SAM": 4, "ASAM": 4, "F-SAM authors": 3, "F-ASAM": 4, "F-FisherSAM": 4}.items(),
)
def test_fused_is_foreach_within_rounding(method, steps, taken):
    fused, ours = trained(method, fused=True)
    assert len(taken) == 2 * steps, "the first step of the authors' code has no kernel"
    plain, theirs = trained(method)
    for a, b in zip(weights(fused), weights(plain), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
    for p, q in zip(fused.parameters(), plain.parameters(), strict=True):
        if p in ours.memory.averages:
            torch.testing.assert_close(
                ours.memory.averages[p], theirs.memory.averages[q], rtol=0, atol=1e-13
            )


@pytest.mark.parametrize("method", ["F-SAM", "F-ASAM", "ASAM"])
def test_tensors_that_share_a_call(method, taken):
    sizes = [LEAST + 1000 * (i % 5) for i in range(sum(TOGETHER))] + [10]

    def ended(fused):
        generator = torch.Generator().manual_seed(0)

        def draw():
            return [torch.randn(n, generator=generator, dtype=torch.float64) for n in sizes]

        parameters = [nn.Parameter(tensor) for tensor in draw()]
        optimizer = FAMILY[method](momentum(parameters), fused=fused)
        perturbed = []
        for _ in range(2):
            for parameter, gradient in zip(parameters, draw(), strict=True):
                parameter.grad = gradient
            with optimizer.perturbed():
                perturbed += [parameter.detach().clone() for parameter in parameters]
        return perturbed, [parameter.detach() for parameter in parameters]

    fused, plain = ended(True), ended(False)
    assert len(taken) == 2 * (len(sizes) - 1)
    torch.testing.assert_close(fused[0], plain[0], rtol=0, atol=1e-13)
    assert_same(fused[1], plain[1])


def test_other_forms_of_f_sam(taken):
    """Debiasing, channels last; the projection has no kernel, and SAM needs none."""
    for method, options, kernels in (
        ("F-SAM debiased", {}, 6),
        ("F-SAM", {"memory_format": torch.channels_last}, 8),
        ("F-SAM projection", {}, 0),
        ("SAM", {}, 0),
    ):
        taken.clear()
        fused, _ = trained(method, fused=True, **options)
        assert len(taken) == kernels
        plain, _ = trained(method, **options)
        for a, b in zip(weights(fused), weights(plain), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_the_weights_come_back_bit_for_bit_and_an_overflow_changes_nothing(taken):
    model, optimizer = trained("F-SAM", fused=True)
    before, averages = weights(model), [m.clone() for m in optimizer.memory.averages.values()]
    taken.clear()
    closure_of(model, 9, torch.float64)()
    with optimizer.perturbed():
        assert not torch.equal(model[0].weight, before[0])
    assert len(taken) == 2
    assert_same(weights(model), before)
    averages = [m.clone() for m in optimizer.memory.averages.values()]
    closure_of(model, 9, torch.float64)()
    model[2].weight.grad[0, 0, 0, 0] = torch.inf
    with optimizer.perturbed():
        assert_same(weights(model), before)
    assert len(taken) == 2
    assert_same(optimizer.memory.averages.values(), averages)


def test_a_gradient_scaler_makes_no_difference():
    ends = []
    for scale in (1.0, 1024.0):
        model = network(torch.float32)
        optimizer = FriendlySAM(momentum(model.parameters()), fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for seed in range(3):
            optimizer.zero_grad()
            closure_of(model, seed, torch.float32, scaler.get_scale())()
            with optimizer.perturbed(scaler=scaler):
                closure_of(model, seed, torch.float32)()
            optimizer.step()
        ends.append(weights(model))
    assert_same(*ends)


def test_a_geometry_without_a_fused_form_goes_the_ordinary_way(taken):
    class Halved(Geometry):
        def squared(self, block):
            return [torch.full_like(w, 0.25) for w in block.weights]

    ends = []
    for wanted in (False, True):
        model = network(torch.float64)
        setting = {"direction": BatchNoise(), "geometry": Halved(), "fused": wanted}
        optimizer = SharpnessAware(momentum(model.parameters()), 0.1, **setting)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for seed in range(2):
                optimizer.step(closure_of(model, seed, torch.float64))
        said = [str(w.message) for w in caught if "fused=True" in str(w.message)]
        assert len(said) == wanted
        ends.append(weights(model))
    assert "Halved has no fused form" in said[0]
    assert not taken
    assert_same(*ends)


def test_without_a_compiler_a_warning_and_the_ordinary_path(tmp_path):
    program = """
import torch, warnings
from friendly_sam import FriendlySAM
model = torch.nn.Linear(256, 256)
optimizer = FriendlySAM(torch.optim.SGD(model.parameters(), lr=0.1), fused=True)
def closure():
    loss = model(torch.ones(2, 256)).square().mean()
    loss.backward()
    return loss
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    losses = [optimizer.step(closure).item() for _ in range(3)]
assert losses[2] < losses[0]
print(len([w for w in caught if "foreach path is used instead" in str(w.message)]))
"""
    environment = {**os.environ, "CXX": "/no/compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(
    ("argument", "reason"), [(1, "not close"), (2, "not close"), (3, "backup .* is not exact")]
)
def test_a_kernel_that_errs_is_not_used(argument, reason, monkeypatch, taken):
    """Each kernel is compared with what it was compiled from before any real tensor is touched."""

    class Wrong:
        def __init__(self, function, *lists):
            self.function = function

        def __call__(self, *lists):
            result = self.function(*lists)
            if self.function.__name__ == "move":
                last = lists[argument][-1]
                if argument == 3:
                    last[-1, -1] += 1e-16 + last[-1, -1] * 1e-15
                else:
                    last.mul_(1.001)
            return result

    monkeypatch.setattr(fused, "Kernel", Wrong)
    model = network(torch.float64)
    optimizer = SharpnessAware(
        momentum(model.parameters()), 0.1, geometry=Euclidean(), fused=True,
        direction=BatchNoise(decay=0.7 + argument / 100),
    )  # fmt: skip
    with pytest.warns(UserWarning, match=f"{reason}.*foreach path is used instead"):
        optimizer.step(closure_of(model, 0, torch.float64))
    assert not taken


def test_a_kernel_that_fits_one_length_only_is_not_used(monkeypatch, taken):
    monkeypatch.setattr(torch._dynamo, "mark_dynamic", torch._dynamo.mark_static)
    model = network(torch.float64)
    optimizer = FriendlySAM(momentum(model.parameters()), decay=0.75, fused=True)
    with pytest.warns(UserWarning, match=r"not (exact|close).*foreach path is used instead"):
        optimizer.step(closure_of(model, 0, torch.float64))
    assert not taken


def test_with_the_compiler_switched_off_a_warning_and_the_ordinary_path(taken):
    model = network(torch.float64)
    optimizer = FriendlySAM(momentum(model.parameters()), decay=0.76, fused=True)
    said = pytest.warns(UserWarning, match=r"switched off. The foreach path is used instead.$")
    with said as warned, torch.compiler.set_stance("force_eager"):
        optimizer.step(closure_of(model, 0, torch.float64))
    assert not taken
    assert warned[0].filename == __file__
    optimizer.step(closure_of(model, 0, torch.float64))
    assert len(taken) == 2, "it is switched on again"


def test_the_tensors_of_the_trial_are_let_go(taken):
    def rows():
        gc.collect()
        tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor]
        return sum(tensor.dim() == 2 and tensor.shape[1] == WIDTH for tensor in tensors)

    before = rows()
    model = network(torch.float32)
    optimizer = FriendlySAM(momentum(model.parameters()), decay=0.77, fused=True)
    optimizer.step(closure_of(model, 0, torch.float32))
    assert len(taken) == 2
    taken.clear()
    del model, optimizer
    assert rows() == before


def test_a_kernel_compares_lengths():
    def add(left, right, constants):
        for a, b in zip(left, right, strict=True):
            a.add_(b)

    def rows(*lengths):
        return [torch.ones(length, WIDTH) for length in lengths]

    kernel = fused.Kernel(add, rows(16, 17), rows(16, 17), [torch.ones(1)])
    left = rows(3, 20)
    kernel(left, rows(3, 20), [torch.ones(1)])
    assert all(tensor.eq(2).all() for tensor in left)
    with pytest.raises(RuntimeError, match="different lengths"):
        kernel(left, rows(3, 19), [torch.ones(1)])


@pytest.mark.parametrize("new_gradient", [True, False])
@pytest.mark.parametrize("rows", [64, 16])
def test_a_parameter_that_changes_its_size_gets_the_error_of_the_ordinary_path(rows, new_gradient):
    """Its average has the old size: a kernel would read or write memory of others."""
    parameter = nn.Parameter(torch.ones(32, WIDTH))
    optimizer = FriendlySAM(momentum([parameter]), fused=True)
    parameter.grad = torch.randn_like(parameter)
    with optimizer.perturbed():
        pass
    parameter.grad = torch.randn_like(parameter)
    parameter.data = torch.ones(rows, WIDTH)
    if new_gradient:
        parameter.grad = torch.randn_like(parameter)
    said = pytest.raises(RuntimeError, match=r"size of tensor|different lengths")
    with said, optimizer.perturbed():
        pass


def test_a_gradient_that_only_wraps_another_goes_the_ordinary_way(taken):
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
            unwrapped = tree_map_only(cls, lambda wrapper: wrapper.inner, arguments)
            return function(*unwrapped, **(keywords or {}))

    def run(fused):
        parameter = nn.Parameter(torch.ones(16, WIDTH))
        optimizer = FriendlySAM(momentum([parameter]), fused=fused)
        moved = []
        for wrap in (lambda gradient: gradient, Wrapper):
            generator = torch.Generator().manual_seed(0)
            parameter.grad = wrap(torch.randn(16, WIDTH, generator=generator))
            with optimizer.perturbed():
                moved.append(parameter.detach().clone())
        return moved

    torch.testing.assert_close(run(True), run(False))
    assert len(taken) == 1


def test_a_direction_with_a_setting_that_may_change_unseen_goes_the_ordinary_way(taken):
    class Scheduled(BatchNoise):
        def turned(self, gradient, average, constant):
            new = torch.lerp(average, gradient, self.schedule["step"])
            return gradient - constant * new, new

        def constant(self, updates):
            return super().constant(updates)

    model = network(torch.float64)
    direction = Scheduled()
    object.__setattr__(direction, "schedule", {"step": 0.1})
    optimizer = SharpnessAware(
        momentum(model.parameters()), 0.5, direction=direction, geometry=Euclidean(), fused=True
    )
    optimizer.step(closure_of(model, 0, torch.float64))
    assert not taken


def test_a_tensor_that_needs_long_indices_goes_the_ordinary_way(monkeypatch, taken):
    monkeypatch.setattr(fused, "MOST", LEAST)
    trained("F-SAM", fused=True)
    assert not taken


def test_no_kernel_is_used_that_was_not_tried(only_tried_kernels, taken):
    with only_tried_kernels():
        for width, autocast in [(65, False), (65, True), (64, False), (80, True), (100, False)]:
            memory = torch.ones(MANY, width + MANY, WIDTH)  # one, as flat parameters have
            rows = [*range(2, 2 + TOGETHER[0]), *[0] * (MANY - TOGETHER[0])]
            parameters = [
                nn.Parameter(part[: width + i]) for part, i in zip(memory, rows, strict=True)
            ]
            base = torch.optim.SGD(parameters, lr=0.1)
            optimizer = FriendlySAM(base, decay=0.8, fused=True)
            for step in range(3):
                for parameter in parameters:
                    drawn = torch.randn(parameter.numel() + 1)
                    parameter.grad = drawn[1:].view_as(parameter)  # memory that starts at 1
                changed = autocast != (step == 1)  # within one training, too
                with torch.autocast("cpu", enabled=changed), optimizer.perturbed():
                    pass
    assert len(taken) == 5 * 3 * MANY


def test_averages_of_different_dtypes_share_no_call(only_tried_kernels, taken):
    """A loaded average keeps the dtype it was saved in; those of new parameters have theirs."""

    def run(fused):
        generator = torch.Generator().manual_seed(0)
        parameters = [nn.Parameter(torch.ones(LEAST)) for _ in range(4)]

        def step(optimizer):
            for parameter in parameters:
                parameter.grad = torch.randn(LEAST, generator=generator)
            with optimizer.perturbed():
                return [parameter.detach().clone() for parameter in parameters]

        first = SharpnessAware(
            momentum(parameters[:2]), 0.05, geometry=Euclidean(),
            direction=BatchNoise(dtype=torch.bfloat16),
        )  # fmt: skip
        step(first)
        second = FriendlySAM(momentum(parameters[:2]), rho=5.0, fused=fused)
        second.load_state_dict(first.state_dict())
        second.add_param_group({"params": parameters[2:]})
        moved = step(second) + step(second)
        averages = list(second.memory.averages.values())
        kinds = [average.dtype for average in averages]
        assert kinds == [torch.bfloat16] * 2 + [torch.float32] * 2
        return moved + averages

    with only_tried_kernels():
        torch.testing.assert_close(run(True), run(False))
    assert len(taken) == 8


def test_each_dtype_and_each_shape_of_the_ball_has_kernels_of_its_own(taken):
    """In one process, of one setting: what is made for one is not taken for another."""
    geometry = ParameterScaled(only=lambda name: name == "2.weight")  # one of the two
    direction = BatchNoise(dtype=torch.float32)

    def run(dtype, fused):
        model = network(dtype)
        optimizer = SharpnessAware(
            momentum(model.named_parameters()), 0.5, direction=direction, geometry=geometry,
            fused=fused,
        )  # fmt: skip
        for seed in range(2):
            optimizer.step(closure_of(model, seed, dtype))
        return weights(model)

    for dtype in (torch.float64, torch.float32):
        torch.testing.assert_close(run(dtype, True), run(dtype, False))
    assert len(taken) == 2 * 2 * 2


def test_a_subclass_that_leaves_the_fused_form_behind_goes_the_ordinary_way(taken):
    class Half(BatchNoise):
        def turn_(self, block, coefficient):
            super().turn_(block, coefficient)
            torch._foreach_add_(block.gradients, block.averages, alpha=0.5)

    class Twice(ParameterScaled):
        def squared(self, block):
            return torch._foreach_mul(super().squared(block), 2.0)

    def trained(direction, geometry, fused):
        model = network(torch.float64)
        base = momentum(model.parameters())
        optimizer = SharpnessAware(base, 0.05, direction=direction, geometry=geometry, fused=fused)
        for seed in range(2):
            optimizer.step(closure_of(model, seed, torch.float64))
        return weights(model)

    for direction, geometry in [(Half(), Euclidean()), (BatchNoise(), Twice())]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "fused=True: Twice has no fused form")
            assert_same(trained(direction, geometry, True), trained(direction, geometry, False))
        assert not taken


@pytest.mark.parametrize("hashed", [True, False])
def test_a_setting_that_changes_on_the_way_is_heeded(hashed, taken):
    class Changing(BatchNoise):
        __hash__ = object.__hash__ if hashed else None
        __eq__ = object.__eq__

    def trained(fused):
        model = network(torch.float64)
        optimizer = SharpnessAware(
            momentum(model.parameters()), 0.5, direction=Changing(decay=0.9),
            geometry=Euclidean(), fused=fused,
        )  # fmt: skip
        optimizer.step(closure_of(model, 0, torch.float64))
        object.__setattr__(optimizer.direction, "decay", 0.3)
        optimizer.step(closure_of(model, 1, torch.float64))
        optimizer.direction = Changing(sigma=0.5)
        optimizer.geometry = ParameterScaled()
        optimizer.step(closure_of(model, 2, torch.float64))
        return weights(model)

    with pytest.warns(UserWarning, match="has changed: with fused=True .* compiled anew"):
        fused = trained(True)
    for a, b in zip(fused, trained(False), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
    assert len(taken) == 3 * 2


def test_a_direction_without_a_hash_has_kernels_of_its_own(taken):
    class Unhashable(BatchNoise):
        __hash__ = None

    model = network(torch.float64)
    base = momentum(model.parameters())
    optimizer = SharpnessAware(base, 0.05, direction=Unhashable(), geometry=Euclidean(), fused=True)
    optimizer.step(closure_of(model, 0, torch.float64))
    assert len(taken) == 2


def test_a_pickled_optimizer_forgets_its_kernels():
    model = network(torch.float64)
    optimizer = SAM(momentum(model.parameters()), fused=True)
    optimizer._kernels = object()
    assert "_kernels" not in optimizer.__getstate__()
