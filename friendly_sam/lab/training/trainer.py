"""The training loop: plain PyTorch, one process or many, resumable at any step."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.claim import claimed, clear, look
from friendly_sam.lab.records.recorder import Recorder
from friendly_sam.lab.training import resume as snapshot
from friendly_sam.lab.training.ascent_batches import step_batches, whole_set
from friendly_sam.lab.training.checkpoints import Checkpoints
from friendly_sam.lab.training.classifier import write_inputs
from friendly_sam.lab.training.decomposition_log import DecompositionLog
from friendly_sam.lab.training.distributed import World, share_buffers, spread, world
from friendly_sam.lab.training.evaluation import evaluate
from friendly_sam.lab.training.feature_cache import trained_part
from friendly_sam.lab.training.gradients import Backward
from friendly_sam.lab.training.interrupts import Stopped, StopSignal, sigterm_noted
from friendly_sam.lab.training.network import build_model
from friendly_sam.lab.training.optimizer import build_optimizer
from friendly_sam.lab.training.schedule import lr_factor
from friendly_sam.lab.training.step import TrainingStep
from friendly_sam.lab.training.streams import Streams, load_data
from friendly_sam.lab.training.tally import Tally

CHECK_STEPS = 100
"""How often the loss is looked at within an epoch: each look waits for the device."""


class Listener(Protocol):
    """Hears how a run gets on; the leading process calls it."""

    def step(self, epoch: int, batch: int, batches: int) -> None:
        """Hear that a batch (from 1) of an epoch (from 1) is done."""

    def epoch(self, metrics: dict[str, float]) -> None:
        """Hear the metrics of an epoch."""


def train(
    config: RunConfig,
    *,
    resume: bool = False,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Path:
    """Train, and leave the records in the run's folder.

    Args:
        config: the run; defaults that depend on the method are filled in.
        resume: go on from the last checkpoint where there is one; a run that is finished is
            left as it is. Without it, a folder that already holds a run is refused.
        overwrite: replace the run that the folder holds.
        listener: hears of every step and epoch.

    Returns:
        The run's folder.
    """
    config = resolve(config)
    folder = Path(config.output or "")
    if config.engine.threads is not None:
        torch.set_num_threads(config.engine.threads)
    with world(config.engine) as here, ExitStack() as claim:
        # One process claims the folder and tells the others: it alone writes there.
        finished, refusal = here.share(
            _claim(claim, folder, config, resume, overwrite) if here.leads else None
        )
        if refusal is not None:
            raise LabError(refusal)
        if not finished:
            Trainer(config, here, listener).run(folder, resume=resume, overwrite=overwrite)
    return folder


def _claim(
    claim: ExitStack, folder: Path, config: RunConfig, resume: bool, overwrite: bool
) -> tuple[bool, str | None]:
    """Return whether the run in a folder is finished, and why a run cannot be done there."""
    try:
        claim.enter_context(claimed(folder, replace=overwrite))
        state = None if overwrite else look(folder, config, resume=resume)
        return state == "finished" and Checkpoints(folder / "checkpoints").complete(), None
    except LabError as error:
        return False, str(error)


class Trainer:
    """One run: what it is made of, and the loop over epochs and batches."""

    def __init__(self, config: RunConfig, here: World, listener: Listener | None = None) -> None:
        self.config, self.here, self.listener = config, here, listener
        self.data = load_data(config)
        self.model = build_model(config, self.data, here)
        self.network, features = trained_part(config, self.data, self.model, here)
        wrapped = spread(self.network, config.engine, here)
        forward = torch.compile(wrapped) if config.engine.compile else wrapped
        self.backward = Backward(forward, config.engine, here.device)  # type: ignore[arg-type]
        self.streams = Streams(config, self.data, here, features)
        self.batches = self.streams.train
        steps = config.epochs * len(self.batches)
        self.optimizer = build_optimizer(
            config, wrapped, self.full_gradient, steps=steps, processes=here.size
        )
        self.take_step = TrainingStep(config, self.optimizer, self.backward)
        self.decomposition = DecompositionLog(config, self.network, self.optimizer, self.streams)
        self.decomposition.check(here)
        self.tally = Tally(here.device)
        self.position = snapshot.Position(data=self.data.digest)
        self.stop_signal = StopSignal()
        torch.manual_seed(config.seed + 1_000_003 * here.rank)  # dropout, each process its own

    def full_gradient(self) -> Tensor:
        """Run forward and backward over the whole training set, see `ascent_batches.whole_set`."""
        samples = whole_set(self.streams)
        return self.backward(samples.pairs, samples.count)

    # -- the loop ---------------------------------------------------------------------------

    def run(self, folder: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        """Train to the end, from the start or from the last checkpoint."""
        if overwrite and self.here.leads:
            clear(folder)
        checkpoints = Checkpoints(folder / "checkpoints")
        state = checkpoints.load() if resume else None
        if state is not None:
            self.position = snapshot.restore(
                state, self.config, self.model, self.optimizer, self.backward.scaler,
                self.tally, self.here,
            )  # fmt: skip
            snapshot.check_data(self.position, self.data.digest)
        if not self.here.leads:
            self._epochs(checkpoints, None)
            return
        position = self.position
        with (
            # Several processes would have to agree on the step to stop after.
            sigterm_noted()
            if self.here.size == 1
            else nullcontext(StopSignal()) as self.stop_signal,
            Recorder(
                folder,
                self.config,
                position=position.metrics,
                digest=position.digest,
                epoch=position.epoch,
                resumed=state is not None,
            ) as recorder,
        ):
            write_inputs(folder, self.data)
            checkpoints.settle()
            self._epochs(checkpoints, recorder)
            recorder.finish()

    def _epochs(self, checkpoints: Checkpoints, recorder: Recorder | None) -> None:
        config, position = self.config, self.position
        every = config.engine.checkpoint_epochs
        for epoch in range(position.epoch, config.epochs):
            self._train_epoch(epoch, checkpoints, recorder)
            metrics = self._measure(epoch)
            if recorder is not None:
                recorder.epoch(metrics)
            score = metrics.get("validation_accuracy", metrics.get("test_accuracy", -math.inf))
            better = config.engine.keep_best and score > position.best
            position.best = max(position.best, score)
            position.epoch, position.batch, position.seconds = epoch + 1, 0, 0.0
            self.tally = Tally(self.here.device)
            due = epoch + 1 == config.epochs or (every > 0 and (epoch + 1) % every == 0)
            if due or better:
                self._save(checkpoints, recorder, best=better)
            if self.listener is not None and recorder is not None:
                self.listener.epoch(metrics)
            if self.stop_signal.received and epoch + 1 < config.epochs:
                if not due and not better:
                    self._save(checkpoints, recorder)
                raise Stopped

    def _train_epoch(self, epoch: int, checkpoints: Checkpoints, recorder: Recorder | None) -> None:
        config, position = self.config, self.position
        count, every = len(self.batches), config.engine.checkpoint_steps
        start = position.batch
        clock = time.perf_counter() - position.seconds
        stream = step_batches(config, self.streams, epoch, start)
        for index, (batch, ascent) in enumerate(stream, start=start):
            self._set_lr(epoch * count + index)
            self.take_step(batch, ascent, self.tally)
            done = index + 1
            if done % CHECK_STEPS == 0:
                self.tally.check(f"in epoch {epoch + 1}, step {done} of {count}")
            due = self.stop_signal.received or (every > 0 and done % every == 0)
            if due and done < count:
                self.tally.check(f"in epoch {epoch + 1}, step {done} of {count}")
                position.batch, position.seconds = done, time.perf_counter() - clock
                self._save(checkpoints, recorder)
                if self.stop_signal.received:
                    raise Stopped
            if self.listener is not None and recorder is not None:
                self.listener.step(epoch + 1, done, count)
        self.tally.check(f"in epoch {epoch + 1}")
        position.seconds = time.perf_counter() - clock

    def _set_lr(self, step: int) -> None:
        count = len(self.batches)
        factor = lr_factor(
            self.config.schedule, step, steps=count * self.config.epochs, steps_per_epoch=count
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.base.lr * factor

    def _measure(self, epoch: int) -> dict[str, float]:
        loss, accuracy = self.tally.read(self.here)
        metrics = {
            "epoch": epoch + 1,
            "step": (epoch + 1) * len(self.batches),
            "lr": self.optimizer.param_groups[0]["lr"],
            "train_loss": loss,
            "train_accuracy": accuracy,
        }
        share_buffers(self.model, self.here)
        due = (epoch + 1) % self.config.engine.eval_epochs == 0 or epoch + 1 == self.config.epochs
        for name, batches in self.streams.held_out.items() if due else ():
            loss, accuracy = evaluate(self.network, batches, self.config.engine, self.here)
            metrics |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        metrics |= self.take_step.perturbation(self.here) | self.decomposition(epoch)
        return metrics | {"seconds": round(self.position.seconds, 4)}

    def _save(
        self, checkpoints: Checkpoints, recorder: Recorder | None, *, best: bool = False
    ) -> None:
        position = self.position
        if recorder is not None:
            position.metrics, position.digest = recorder.sync()
        state = snapshot.capture(
            self.config, self.model, self.optimizer, self.backward.scaler,
            self.tally, position, self.here,
        )  # fmt: skip
        if recorder is not None:
            step = position.epoch * len(self.batches) + position.batch
            checkpoints.save(state, step, best=best)
