"""The step of examples/accelerate_loop.py is the hand-written one, bit for bit."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("accelerate")
pytest.importorskip("sklearn")

import accelerate
from family import FAMILY, assert_same, batch, momentum, network, weights
from torch.nn import functional as F

from friendly_sam import Every

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEPS, SIZE = 6, 16


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(
        "accelerate_loop", EXAMPLES / "accelerate_loop.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("digits", None)
    accelerate.state.AcceleratorState._reset_state(True)


def prepared(method="F-SAM", precision="no", dtype=torch.float64, **options):
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
    model = network(dtype)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model, **options)
    return accelerator, *accelerator.prepare(model, optimizer)


def run(example, parts, steps=range(STEPS), pieces=1, clip=None, dtype=torch.float64):
    accelerator, model, optimizer = parts
    losses = []
    for seed in steps:
        x, y = batch(seed, SIZE, dtype)
        micro_batches = list(zip(x.chunk(pieces), y.chunk(pieces), strict=True))
        losses.append(example.step(accelerator, model, optimizer, micro_batches, clip=clip))
    return losses


def by_hand(method="F-SAM", clip=None, autocast=None, dtype=torch.float64, **options):
    torch.manual_seed(0)
    model = network(dtype)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model, **options)
    losses = []
    for seed in range(STEPS):
        x, y = batch(seed, SIZE, dtype)

        def backward(x=x, y=y):
            with torch.autocast("cpu", autocast, enabled=autocast is not None):
                logits = model(x)
            loss = F.cross_entropy(logits.float() if autocast else logits, y)
            loss.backward()
            return loss.item()

        losses.append(backward())
        if optimizer.ascent_due:
            with optimizer.perturbed():
                backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer, losses


@pytest.mark.parametrize(
    ("method", "settings"),
    [("SAM", {}), ("F-SAM", {}), ("F-ASAM", {"clip": 0.05}), ("F-SAM", {"when": Every(2)})],
)
def test_the_step_is_the_hand_written_one(example, method, settings):
    clip = settings.pop("clip", None)
    parts = prepared(method, **settings)
    losses = run(example, parts, clip=clip)
    model, optimizer, expected = by_hand(method, clip, **settings)
    assert losses == expected
    assert_same(weights(parts[1]), weights(model))
    averages = parts[2].optimizer.memory.tensors("ema").values()
    assert_same(averages, optimizer.memory.tensors("ema").values())


def test_batchnorm_statistics_move_once_a_step(example):
    accelerator = accelerate.Accelerator(cpu=True)
    model = network(batchnorm=True)
    optimizer = FAMILY["F-SAM"](momentum(model.parameters()), model=model)
    run(example, (accelerator, *accelerator.prepare(model, optimizer)))
    assert model[1].num_batches_tracked == STEPS


def test_bf16_is_the_hand_written_step(example):
    parts = prepared(precision="bf16", dtype=torch.float32)
    run(example, parts, dtype=torch.float32)
    model, _, _ = by_hand(autocast=torch.bfloat16, dtype=torch.float32)
    assert_same(weights(parts[1]), weights(model))


def test_accumulating_four_micro_batches_is_one_batch_of_four_times_the_size(example):
    pieces, whole = prepared(), prepared()
    run(example, pieces, pieces=4)
    run(example, whole)
    for a, b in zip(weights(pieces[1]), weights(whole[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_a_gradient_scaler_changes_nothing(example):
    """Accelerate allows fp16 on no CPU, so this is its scaler over float64 passes."""
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    model = network()
    optimizer = FAMILY["F-SAM"](momentum(model.parameters()), model=model)
    parts = (accelerator, *accelerator.prepare(model, optimizer))
    run(example, parts)
    assert accelerator.scaler.get_scale() > 2.0**10
    assert_same(weights(parts[1]), weights(by_hand()[0]))


def test_a_resumed_run_is_the_uninterrupted_one(example, tmp_path):
    whole = prepared()
    run(example, whole)
    begun = prepared()
    run(example, begun, range(3))
    begun[0].save_state(tmp_path / "state")
    resumed = prepared()
    torch.nn.init.zeros_(resumed[1][0].weight)
    resumed[0].load_state(tmp_path / "state")
    run(example, resumed, range(3, STEPS))
    assert_same(weights(resumed[1]), weights(whole[1]))
    averages = [parts[2].optimizer.memory.tensors("ema").values() for parts in (resumed, whole)]
    assert_same(*averages)
