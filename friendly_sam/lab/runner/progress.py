"""Progress for people: bars with time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import printable
from friendly_sam.lab.terminal import untouched


class RunProgress:
    """Shows one run: a bar over all steps, and one line per epoch. A `Listener` of the engine."""

    def __init__(self, config: RunConfig) -> None:
        self.epochs, self.folder, self.cache = config.epochs, config.output, config.model.cache
        self.announced = False
        self.slow = _SlowRun(config)
        self.bar = _bars() if sys.stderr.isatty() else None
        self.task: Any = None

    def __enter__(self) -> RunProgress:
        if self.cache is not None:
            print(
                "features of the frozen blocks come first, which may take longer than training; "
                f"later runs find them in {self.cache}",
                flush=True,
            )
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()

    def step(self, epoch: int, batch: int, batches: int) -> None:
        """Move the bar; the first step says where the run is written."""
        if not self.announced:
            self.announced = True
            print(f"run folder: {self.folder}", flush=True)
        total, done = self.epochs * batches, (epoch - 1) * batches + batch
        self.slow.step(done, total)
        if self.bar is None:
            return
        if self.task is None:
            self.task = self.bar.add_task("", total=total, completed=done)
        self.bar.update(self.task, completed=done, description=f"epoch {epoch}/{self.epochs}")

    def epoch(self, metrics: dict[str, float]) -> None:
        """Print the metrics of an epoch."""
        words = [
            f"epoch {int(metrics['epoch']):>{len(str(self.epochs))}}/{self.epochs}",
            f"train loss {metrics['train_loss']:.4f}",
            f"train {metrics['train_accuracy']:6.2f} %",
        ]
        if "validation_accuracy" in metrics:
            words.append(f"validation {metrics['validation_accuracy']:6.2f} %")
        if "test_accuracy" in metrics:
            words.append(f"test {metrics['test_accuracy']:6.2f} %")
        words.append(f"{metrics['seconds']:.1f} s")
        line = "  ".join(words)
        if self.bar is not None:
            self.bar.console.print(line, highlight=False)
        else:
            print(line, flush=True)


class _SlowRun:
    """Warns once, early, that a run on a CPU will take hours."""

    LOOK_AFTER = 10.0
    """Seconds of training that an estimate rests on."""
    SLOW = 3600.0

    def __init__(self, config: RunConfig) -> None:
        self.device = config.engine.device
        self.began: tuple[float, int] | None = None
        self.told = False

    def step(self, done: int, total: int) -> None:
        """Look at the clock; the first step, which warms up, does not count."""
        now = time.monotonic()
        if self.began is None:
            self.began = now, done
        start, before = self.began
        if self.told or done == before or now - start < self.LOOK_AFTER:
            return
        self.told = True
        left = (now - start) / (done - before) * (total - done)
        if left > self.SLOW and self._on_cpu():
            print(
                f"warning: about {_span(left)} left on this CPU; the run is meant for a GPU. "
                "`fsam list presets` names those for a CPU.",
                file=sys.stderr,
                flush=True,
            )

    def _on_cpu(self) -> bool:
        from friendly_sam.lab.training.distributed import choose_device

        return choose_device(self.device).type == "cpu"


class TaskProgress:
    """Shows one task: a bar on a terminal, one line elsewhere; called with (done, of all)."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.bar = _bars() if sys.stderr.isatty() else None
        self.task: Any = None

    def __enter__(self) -> TaskProgress:
        if self.bar is None:
            print(self.words, flush=True)
        else:
            self.task = self.bar.add_task(printable(self.words), total=None)
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, done: int, most: int) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=most)


class GridProgress:
    """Shows many runs: a bar over all their work, and one for each run under way.

    Args:
        work: what each run will cost, in any unit, by the run's folder.
        verbose: without a terminal, print a line for each run that ends; else a few on the whole.
    """

    def __init__(self, work: dict[str, float], *, verbose: bool = True) -> None:
        self.work = work
        self.shares = dict.fromkeys(work, 0.0)
        self.ended = 0
        self.skipped = 0.0
        self.verbose = verbose
        self.started = time.monotonic()
        self.bar = _bars() if sys.stderr.isatty() else None
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> GridProgress:
        if self.bar is not None:
            self.tasks[""] = self.bar.add_task("all runs", total=sum(self.work.values()))
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, name: str, share: float) -> None:
        """Note that a run has done this share of its work."""
        self.shares[name] = share
        if self.bar is None:
            return
        if name not in self.tasks:
            self.tasks[name] = self.bar.add_task(printable(Path(name).name), total=1.0)
        self.bar.update(self.tasks[name], completed=share)
        self.bar.update(self.tasks[""], completed=self._done())

    def skip(self, name: str) -> None:
        """Note a run that was finished before."""
        self.ended += 1
        self.shares[name] = 1.0
        self.skipped += self.work[name]

    def end(self, name: str, error: str | None) -> None:
        """Note that a run has ended, well or with an error."""
        self.ended += 1
        if error is not None:  # the rest of its work was not done, and will not be
            self.skipped += self.work[name] * (1 - self.shares[name])
        self.shares[name] = 1.0
        if self.bar is not None:
            if name in self.tasks:
                self.bar.remove_task(self.tasks.pop(name))
            self.bar.update(self.tasks[""], completed=self._done())
        elif self.verbose:
            result = "done" if error is None else f"FAILED: {error}"
            left = f", about {_span(self.left())} left" if self.ended < len(self.work) else ""
            print(f"[{self.ended}/{len(self.work)}] {Path(name).name}: {result}{left}", flush=True)
        elif self.ended < len(self.work) and self.ended % max(len(self.work) // 5, 1) == 0:
            left = _span(self.left())
            print(f"{self.ended} of {len(self.work)} done, about {left} left", flush=True)

    def _done(self) -> float:
        return sum(self.work[name] * share for name, share in self.shares.items())

    def left(self) -> float:
        """Estimate the seconds left, from the work done so far."""
        done = self._done() - self.skipped
        rest = sum(self.work.values()) - self._done()
        return (time.monotonic() - self.started) * rest / done if done > 0 else float("nan")


def _span(seconds: float) -> str:
    if seconds != seconds:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min"
        if hours
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),  # names of folders may have brackets
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(file=untouched(sys.stderr)),
        transient=True,
    )
