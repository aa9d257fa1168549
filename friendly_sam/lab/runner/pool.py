"""Many runs in parallel processes; what is done is skipped, what was cut off goes on.

Each worker process is used for many runs, so that small ones do not pay for its start. A
worker that dies takes one run with it and is replaced; Ctrl-C stops all workers at once, each
with a checkpoint of its last step, so every run can go on later.

Neither Optuna nor submitit does this: Optuna's `n_jobs` are threads of one process, and submitit's
local executor starts a process for every job at once, each with torch's start-up, which takes
longer than a small run, and does not tell the jobs of a Ctrl-C.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import cast

from friendly_sam.lab.config.identity import difference
from friendly_sam.lab.config.resolve import passes, resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import from_yaml
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import run_state
from friendly_sam.lab.runner.progress import GridProgress
from friendly_sam.lab.training.interrupts import Stopped, sigterm_stops


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    config: RunConfig
    """The resolved config."""
    error: str | None = None
    """Why it failed; `None`: it is finished."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.config.output or "")


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    configs: Sequence[RunConfig], *, workers: int | None = None, verbose: bool = True
) -> list[Outcome]:
    """Do all runs, in parallel; return their outcomes in the same order.

    Args:
        configs: the runs, each with a folder of its own.
        workers: processes (default: one per core, at most one per run); cores are shared out
            among them as threads.
        verbose: without a terminal, print a line for each run that ends.
    """
    check_workers(workers)
    runs = [resolve(config) for config in configs]
    folders = [run.output for run in runs]
    twice = {folder for folder in folders if folders.count(folder) > 1}
    if twice:
        raise LabError(f"several runs have the same output folder: {min(map(str, twice))}")
    work = {str(run.output): passes(run) * run.epochs for run in runs}
    outcomes: dict[str, Outcome] = {}
    todo: deque[RunConfig] = deque()
    with GridProgress(work, verbose=verbose) as progress:
        for run in runs:
            if run_state(Path(str(run.output))) == "finished" and _is_same(run):
                outcomes[str(run.output)] = Outcome(config=run)
                progress.skip(str(run.output))
            else:
                todo.append(run)
        count = min(workers or cores(), len(todo))
        pool = _Pool(count, threads=max(1, cores() // max(count, 1)))
        try:
            with sigterm_stops():
                for outcome in pool.run(todo, progress):
                    name = str(outcome.config.output)
                    outcomes[name] = outcome
                    progress.end(name, outcome.error)
        finally:
            pool.stop()
    return [outcomes[str(run.output)] for run in runs]


def check_workers(workers: int | None) -> None:
    """Refuse a number of processes below 1."""
    if workers is not None and workers < 1:
        raise LabError(f"workers must be at least 1, got {workers}")


def _is_same(run: RunConfig) -> bool:
    """Whether the run in the folder is the one that is wanted; if not, it will fail."""
    return difference(from_yaml(Path(str(run.output)) / "config.yaml"), run) is None


class _Worker:
    """A process, the pipe to it, and the run it is busy with."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, threads), daemon=True)
        self.process.start()
        theirs.close()
        self.run: RunConfig | None = None

    def give(self, run: RunConfig) -> None:
        self.run = run
        self.pipe.send(run)


class _Pool:
    def __init__(self, count: int, *, threads: int) -> None:
        self.threads = threads
        self.workers = [_Worker(threads) for _ in range(count)]

    def run(self, todo: deque[RunConfig], progress: GridProgress) -> Iterator[Outcome]:
        """Return out runs and yield outcomes as they come."""
        for worker in self.workers:
            worker.give(todo.popleft())
        while busy := {worker.pipe: worker for worker in self.workers if worker.run is not None}:
            for pipe in wait(list(busy)):
                worker = busy[cast(Connection, pipe)]
                run = cast(RunConfig, worker.run)
                try:
                    kind, value = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    kind, value = "end", self._bury(worker)
                if kind == "share":
                    progress.advance(str(run.output), value)
                    continue
                worker.run = None
                yield Outcome(config=run, error=value)
                if todo:
                    if worker not in self.workers:
                        worker = _Worker(self.threads)
                        self.workers.append(worker)
                    worker.give(todo.popleft())

    def _bury(self, worker: _Worker) -> str:
        """Part with a worker that died; say why."""
        worker.process.join()
        self.workers.remove(worker)
        code = worker.process.exitcode or 0
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"its process died ({cause})"

    def stop(self) -> None:
        """End the workers, whatever they do; an idle one ends by itself when its pipe closes."""
        for worker in self.workers:
            worker.pipe.close()
            if worker.run is not None:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()


class _Messenger:
    """A listener that tells the parent process, at most a few times a second."""

    def __init__(self, pipe: Connection, config: RunConfig) -> None:
        self.pipe, self.epochs, self.last = pipe, config.epochs, 0.0

    def step(self, epoch: int, batch: int, batches: int) -> None:
        now = time.monotonic()
        if now - self.last > 0.2:
            self.last = now
            try:
                self.pipe.send(("share", (epoch - 1 + batch / batches) / self.epochs))
            except OSError:  # the parent has gone: stop as if it had asked to
                signal.raise_signal(signal.SIGTERM)

    def epoch(self, metrics: dict[str, float]) -> None:
        pass


def _work(pipe: Connection, threads: int) -> None:
    """Do what comes through the pipe, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    import torch

    from friendly_sam.lab.training.trainer import train

    torch.set_num_threads(threads)
    while True:
        try:
            config: RunConfig = pipe.recv()
        except (EOFError, OSError):
            return
        if config.engine.threads is None:
            config = replace(config, engine=replace(config.engine, threads=threads))
        error: str | None = None
        try:
            train(config, resume=True, listener=_Messenger(pipe, config))
        except Stopped:
            return
        except Exception as failure:
            error = " ".join(str(failure).split()) or type(failure).__name__
        try:
            pipe.send(("end", error))
        except OSError:
            return
