"""An epoch of the lab against a bare loop of the same network on batches that lie ready.

The bare loop has no records, no loss and accuracy, no shuffling and no augmentation. A second
bare loop is the control: its ratio to the first shows the noise. The digits are enlarged to the
size of CIFAR's images, so that nothing need be downloaded.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from friendly_sam import SharpnessAware
from friendly_sam.lab.bench.timing import clock, take_turns, timed
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import (
    DataConfig,
    EngineConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
)
from friendly_sam.lab.statistics import ratio, spread
from friendly_sam.lab.training.ascent_batches import step_batches
from friendly_sam.lab.training.checkpoints import Checkpoints
from friendly_sam.lab.training.distributed import World, world
from friendly_sam.lab.training.trainer import Trainer

MEASURED = {"SGD": "base", "F-SAM": "fsam"}


class Bare:
    """The loop that everybody writes, on batches that lie ready."""

    def __init__(self, config: RunConfig, here: World) -> None:
        trainer = Trainer(config, here)
        self.model, self.optimizer = trainer.model, trainer.optimizer
        self.batches = [(b.images.clone(), b.labels.clone()) for b in trainer.batches.epoch(0)]

    def epoch(self) -> None:
        """One step per batch."""
        for x, y in self.batches:

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()  # type: ignore[no-untyped-call]
                return loss

            if isinstance(self.optimizer, SharpnessAware):
                self.optimizer.step(closure)
            else:
                self.optimizer.zero_grad()
                closure()
                self.optimizer.step()


def setting(
    method: str, output: str, *, network: str, images: int, size: int, batch: int, threads: int
) -> RunConfig:
    """The run whose epochs are measured: augmented as the paper does it."""
    return resolve(
        RunConfig(
            data=DataConfig(
                train_size=images, test_size=100, image_size=size, batch_size=batch, flip=True,
                crop_padding=4,
            ),
            model=ModelConfig(name=network),
            method=MethodConfig(name=method),
            engine=EngineConfig(threads=threads, device="cpu", tensorboard=False),
            output=output,
        )
    )  # fmt: skip


def measure_epoch(
    *,
    rounds: int,
    threads: int,
    network: str = "resnet8",
    images: int = 512,
    size: int = 32,
    batch: int = 128,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure epochs of the lab and of bare loops; return what the JSON holds."""
    torch.set_num_threads(threads)
    rows: dict[str, Any] = {}
    for title, method in MEASURED.items():
        progress(f"epoch: {network}, {title}")
        with tempfile.TemporaryDirectory() as folder:
            config = setting(
                method, folder, network=network, images=images, size=size, batch=batch,
                threads=threads,
            )  # fmt: skip
            with world(config.engine) as here:
                rows[title] = compare(config, here, rounds, threads, Path(folder))
    return {
        "network": network, "images": images, "size": size, "batch": batch, "threads": threads,
        "rounds": rounds, "rows": rows,
    }  # fmt: skip


def compare(
    config: RunConfig, here: World, rounds: int, threads: int, folder: Path
) -> dict[str, Any]:
    """Let the lab and two bare loops take turns at an epoch of a run."""
    lab, checkpoints = Trainer(config, here), Checkpoints(folder)

    def epoch() -> None:
        lab._train_epoch(0, checkpoints, None)

    now = clock(threads)
    sides = {
        "bare": timed(Bare(config, here).epoch, now),
        "lab": timed(epoch, now),
        "control": timed(Bare(config, here).epoch, now),
    }
    times = take_turns(sides, rounds=rounds, warm_up=1)
    return {
        **{name: spread(values).as_dict() for name, values in times.items()},
        "lab against bare": ratio(times["lab"], times["bare"]).as_dict(),
        "control against bare": ratio(times["control"], times["bare"]).as_dict(),
        "parts": where_time_goes(lab, epoch),
    }


def where_time_goes(lab: Trainer, epoch: Callable[[], None], rounds: int = 3) -> dict[str, float]:
    """Seconds of an epoch by part, in processor time: batches, passes, optimizer, the rest."""
    spent = dict.fromkeys(("batches", "passes", "loss and accuracy", "base update"), 0.0)
    now = time.process_time

    @contextmanager
    def counted(part: str) -> Iterator[None]:
        start = now()
        try:
            yield
        finally:
            spent[part] += now() - start

    def wrapped(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            with counted(part):
                return call(*arguments, **named)

        return run

    step = lab.take_step
    base: Any = getattr(lab.optimizer, "base", lab.optimizer)
    backward, add, move = step.backward, lab.tally.add, base.step
    step.backward = _Passes(wrapped("passes", backward), backward)  # type: ignore[assignment]
    lab.tally.add = wrapped("loss and accuracy", add)  # type: ignore[method-assign]
    base.step = wrapped("base update", move)
    try:
        start = now()
        for _ in range(rounds):
            epoch()
        total = now() - start
        for _ in range(rounds):
            with counted("batches"):
                for _ in step_batches(lab.config, lab.streams, 0, 0):
                    pass
    finally:
        step.backward, base.step = backward, move
        lab.tally.add = add  # type: ignore[method-assign]
    spent["passes"] -= spent["loss and accuracy"]
    rest = "ascent, restore and the loop"
    spent[rest] = total - sum(spent.values())
    return {part: seconds / rounds for part, seconds in spent.items()} | {"epoch": total / rounds}


class _Passes:
    """The lab's passes with a stopwatch around them."""

    def __init__(self, call: Callable[..., Any], original: Any) -> None:
        self.call, self.scaler, self.forward = call, original.scaler, original.forward
        self.device = original.device

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.call(*arguments, **named)
