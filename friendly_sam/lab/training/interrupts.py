"""SIGTERM, as Slurm and `kill` send it: finish the step, write a checkpoint, stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """A run stopped because it was asked to, with a checkpoint of its last step."""


class StopSignal:
    """Whether the signal has come."""

    received = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Note the signal; the training loop looks after each step."""
        self.received = True


@contextmanager
def sigterm_noted() -> Iterator[StopSignal]:
    """Note SIGTERM inside the block instead of dying of it.

    Where it cannot be caught (not the main thread) or somebody catches it already (submitit,
    which puts the job back into its queue), it is never received.
    """
    signal_ = StopSignal()
    with _on_sigterm(signal_.receive):
        yield signal_


@contextmanager
def sigterm_stops() -> Iterator[None]:
    """Raise `Stopped` at SIGTERM inside the block, for a process that only waits for others."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    with _on_sigterm(stop):
        yield


@contextmanager
def _on_sigterm(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
