from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lab_runs import Tiny
from torch import Tensor

from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.training.ascent_batches import Samples, step_batches, whole_set, windows
from friendly_sam.lab.training.distributed import World
from friendly_sam.lab.training.tally import Tally
from friendly_sam.lab.training.trainer import Trainer

HERE = World(device=torch.device("cpu"))


def _trainer(config: RunConfig) -> Trainer:
    return Trainer(resolve(config), HERE)


def _gradient(trainer: Trainer, pairs: Any, count: float) -> list[Tensor]:
    trainer.model.zero_grad()
    trainer.backward(pairs, count)
    return [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]


def test_a_window_holds_its_batch_and_no_image_twice(tiny: Tiny) -> None:
    batches = _trainer(tiny()).streams.train
    seen = list(windows(batches, 1, 0, 3))
    own = list(batches.epoch(1))
    assert len(seen) == len(own) == 4
    for window, batch in zip(seen, own, strict=True):
        assert torch.equal(window[0][0], batch.images)
        images = torch.cat([images for images, _ in window]).flatten(1)
        assert len(images.unique(dim=0)) == len(images)
    resumed = list(windows(batches, 1, 2, 3))
    for first, second in zip(seen[2:], resumed, strict=True):
        for (a, _), (b, _) in zip(first, second, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_the_ascent_gradient_is_that_of_the_joined_batch(cut: int, tiny: Tiny) -> None:
    trainer = _trainer(tiny(method={"ascent_batches": 3}))
    for own, ascent in step_batches(trainer.config, trainer.streams, 0, 0):
        assert ascent is not None
        pairs = list(ascent.pairs)
        images = torch.cat([x for x, _ in pairs])
        labels = torch.cat([y for _, y in pairs])
        assert torch.equal(images[: len(next(iter(own.pairs))[1])], next(iter(own.pairs))[0])
        got = _gradient(trainer, Samples(pairs, ascent.count).pieces(cut), ascent.count)
        trainer.model.zero_grad()
        F.cross_entropy(trainer.model(images), labels).backward()
        for gradient, parameter in zip(got, trainer.model.parameters(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad)


def test_the_full_gradient_is_that_of_the_whole_set(tiny: Tiny) -> None:
    trainer = _trainer(tiny(engine={"eval_batch_size": 33}, data={"flip": True}))
    images = whole_set(trainer.streams)
    got = _gradient(trainer, images.pairs, images.count)
    batch = list(trainer.streams.whole.epoch(0))
    x, y = torch.cat([b.images for b in batch]), torch.cat([b.labels for b in batch])
    assert len(x) == 250
    assert torch.equal(y, trainer.data.train.labels)
    trainer.model.zero_grad()
    F.cross_entropy(trainer.model(x), y).backward()
    for gradient, parameter in zip(got, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_a_part_of_the_batch_is_its_beginning(tiny: Tiny) -> None:
    trainer = _trainer(tiny(method={"ascent_fraction": 0.125}))
    sizes = []
    for own, ascent in step_batches(trainer.config, trainer.streams, 0, 0):
        assert ascent is not None
        (part,) = ascent.pairs
        (whole,) = own.pairs
        assert torch.equal(part[0], whole[0][: len(part[0])])
        assert ascent.count == len(part[1])
        sizes.append(len(part[1]))
    assert sizes == [8, 8, 8, 8]  # the last batch has 58 images


def test_sam_db_ascends_on_another_batch_of_the_same_size(tiny: Tiny) -> None:
    trainer = _trainer(tiny(method={"name": "sam-db"}))
    for own, ascent in step_batches(trainer.config, trainer.streams, 0, 0):
        assert ascent is not None
        (mine,), (other,) = own.pairs, ascent.pairs
        assert mine[0].shape == other[0].shape
        assert not torch.equal(mine[0], other[0])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ({"name": "base"}, [64]),
        ({"name": "sam"}, [64, 64]),
        ({"name": "fsam", "ascent_batches": 2}, [128, 64]),
        ({"name": "fsam", "ascent_fraction": 0.25}, [16, 64]),
        ({"name": "sam-db"}, [64, 64]),
        ({"name": "sam-full"}, [250, 64]),
        ({"name": "sam-noise"}, [64, 250, 64]),
        ({"name": "sam", "rho": 0.0}, [64]),
    ],
)
def test_a_step_sees_the_images_it_should(
    method: dict[str, Any], expected: list[int], tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = _trainer(tiny(method=method))
    seen = []
    original = trainer.backward.__class__.__call__

    def spy(self: Any, pairs: Any, images: float, tally: Tally | None = None) -> Tensor:
        pairs = list(pairs)
        seen.append((sum(len(y) for _, y in pairs), tally is not None))
        return original(self, pairs, images, tally)

    monkeypatch.setattr(type(trainer.backward), "__call__", spy)
    own, ascent = next(step_batches(trainer.config, trainer.streams, 0, 0))
    trainer.take_step(own, ascent, trainer.tally)
    assert [size for size, _ in seen] == expected
    assert [counted for _, counted in seen] == [True] + [False] * (len(expected) - 1)
    assert trainer.tally.count == expected[0]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_clipping_leaves_the_ascent_gradient_alone(precision: str, tiny: Tiny) -> None:
    states = []
    for clip in (None, 1e-3):
        config = tiny(f"{clip}", engine={"clip_norm": clip, "precision": precision})
        trainer = _trainer(dataclasses.replace(config))
        own, ascent = next(step_batches(trainer.config, trainer.streams, 0, 0))
        before = [p.detach().clone() for p in trainer.model.parameters()]
        trainer.take_step(own, ascent, trainer.tally)
        kept = trainer.optimizer.state_dict()["state"]
        averages = [
            value
            for state in kept.values()
            for name, value in sorted(state.items())
            if name != "momentum_buffer" and isinstance(value, Tensor) and value.dim()
        ]
        moved = sum(
            (a - b).square().sum().item()
            for a, b in zip(before, trainer.model.parameters(), strict=True)
        )
        states.append((averages, moved))
    (plain, far), (clipped, near) = states
    assert len(plain) == 6
    assert all(torch.equal(a, b) for a, b in zip(plain, clipped, strict=True))
    assert near < far / 100
