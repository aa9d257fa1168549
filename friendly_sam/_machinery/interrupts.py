"""Signals wait while tensors are on their way: nothing is left half-way by Ctrl-C or a time-out.

Python runs a signal's handler between any two instructions, also within `finally` and
`__exit__`, and whatever the handler raises comes out there. No `try` can be sure to be entered
in time. So while weights may be at w + ε, every handler is wrapped: it is called at once where
code of the user is running, and after the region where code of the library is.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_SEALED: set[CodeType] = set()
_SIGNALS = tuple(int(number) for number in signal.valid_signals())
_handler: Callable[[int], Any] = _signal.getsignal
"""As `signal.getsignal`, without an Enum made of each answer: it is asked 128 times a step."""


def sealed(function: Function) -> Function:
    """Mark a function that runs no code of the user: a guarded signal waits until it ends."""
    _SEALED.add(function.__code__)
    return function


class Guard:
    """While it is on, signals wait whenever `holding` is set or a sealed function is running."""

    def __init__(self) -> None:
        self.holding = False
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._waiting: list[tuple[int, FrameType | None]] = []
        self._wrapper = self._handle  # one object, so that it can be recognised

    @sealed
    def on(self) -> None:
        """Wrap the handlers of this process; outside the main thread nothing needs it."""
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in _SIGNALS:
                handler = _handler(number)
                if callable(handler) and handler is not self._wrapper:
                    self._handlers[number] = handler
                    signal.signal(number, self._wrapper)
        except BaseException:
            self.off()
            raise

    @sealed
    def off(self) -> None:
        """Put the handlers back, then call those of the signals that waited."""
        try:
            self._unwrap()
        finally:
            self._unwrap()  # where a handler that was back already raised in between
            self.holding = False
            self.deliver()

    def deliver(self) -> None:
        """Call the handlers of the signals that waited; they may raise."""
        while self._waiting:
            number, frame = self._waiting.pop(0)
            self._handlers[number](number, frame)

    @sealed
    def _unwrap(self) -> None:
        for number, handler in self._handlers.items():
            if _handler(number) is self._wrapper:
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.holding or _in_sealed(frame):
            self._waiting.append((number, frame))
        else:
            self._handlers[number](number, frame)


class Uninterrupted:
    """Inside, signals wait, so that what is updated is updated wholly.

    Example:
        >>> from friendly_sam._machinery.interrupts import Uninterrupted
        >>> with Uninterrupted():
        ...     pass
    """

    def __init__(self) -> None:
        self._guard = Guard()

    def __enter__(self) -> None:
        self._guard.holding = True
        self._guard.on()

    @sealed
    def __exit__(self, *_: object) -> None:
        self._guard.off()


def _in_sealed(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _SEALED:
            return True
        frame = frame.f_back
    return False
