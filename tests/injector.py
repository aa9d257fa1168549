"""Signals at any moment of a step, and what must hold after each: for test_signals.py, attack.py.

`Timer` sends a signal after some time, `Opcode` at one opcode of the library's files. After a hit
the exception is kept with its traceback, as a notebook keeps it, while the weights, the flags of
normalisation layers, the signal handlers and the wrapper's own state are looked at.
"""

import contextlib
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from family import FAMILY
from step_forms import FORMS

import friendly_sam

OURS = str(Path(friendly_sam.__file__).parent)
BASE = str(Path(torch.optim.__file__).parent / "sgd.py")


class TimedOut(Exception):
    """What the handler of a time-out raises."""


def time_out(number, frame):
    raise TimedOut


RAISING = {signal.SIGINT: signal.default_int_handler, signal.SIGUSR1: time_out}
ERRORS = (KeyboardInterrupt, TimedOut)


class Heard:
    """Inside, SIGINT and SIGUSR1 raise, and SIGALRM passes one of them on."""

    def __init__(self, number):
        self.number = number

    def alarm(self, number, frame):
        signal.raise_signal(self.number)

    def __enter__(self):
        handlers = {**RAISING, signal.SIGALRM: self.alarm}
        if self.number == signal.SIGALRM:
            handlers[signal.SIGALRM] = time_out
        self.before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
        self.hook, sys.unraisablehook = sys.unraisablehook, lambda *_: None  # a hit in a __del__

    def __exit__(self, *_):
        sys.unraisablehook = self.hook
        for each, handler in self.before.items():
            signal.signal(each, handler)


class Timer:
    """A signal after `delay` seconds."""

    ours_only = False

    def __init__(self, delay):
        self.delay = delay

    def __enter__(self):
        signal.setitimer(signal.ITIMER_REAL, self.delay)

    def stop(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)

    __exit__ = stop

    def ready(self, scene):
        pass


class Opcode:
    """Signal `number` at `place`, the first or the last time the library comes there.

    Without a place it counts, in `visits`, how often the library comes to which opcode. The frames
    of contextlib belong to it. With `leaving`, only the end of a `with` counts.
    """

    ours_only = True

    def __init__(self, number=None, place=None, visit=1, leaving=False):
        self.number, self.place, self.visit, self.leaving = number, place, visit, leaving
        self.visits = Counter()

    def ready(self, scene):
        if self.leaving:
            scene.leaving, scene.left = self.start, self.stop

    def start(self):
        sys.settrace(self.call)

    def stop(self, *_):
        sys.settrace(None)

    def __enter__(self):
        if not self.leaving:
            self.start()

    __exit__ = stop

    def call(self, frame, event, _):
        if self.place is not None:
            watched = frame.f_code is self.place[0]
        else:
            watched = ours(frame.f_code) or frame.f_code.co_filename == contextlib.__file__
        if not watched:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.opcode

    def opcode(self, frame, event, _):
        if event == "opcode":
            here = frame.f_code, frame.f_lasti
            self.visits[here] += 1
            if here == self.place and self.visits[here] == self.visit:
                sys.settrace(None)
                signal.raise_signal(self.number)
        return self.opcode


@dataclass
class Tally:
    """How many signals hit, how many left what wrong, and where."""

    hits: int = 0
    wrong: Counter = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)

    def take(self, error, wrongs):
        self.hits += 1
        self.wrong.update({each.partition(":")[0] for each in wrongs})
        if wrongs and len(self.places) < 8:
            self.places.append(f"{'; '.join(wrongs)}, after a signal in {place_of(error)}")

    def __str__(self):
        return "\n".join((f"{self.hits} hits, wrong: {dict(self.wrong)}", *self.places))


class Attack:
    """One form of a step with one recipe, hit again and again from the same start."""

    def __init__(self, form, recipe="F-SAM"):
        self.form, self.recipe, self.spare = form, FAMILY[recipe], None
        self.duration = min(self.time() for _ in range(3))
        start = self.make()
        before, own = start.weights(), start.own()
        start.act(start)
        self.after, self.own = start.weights(), (own, start.own())
        self.ends, self.moved = [before, self.after], None
        if form == "first_step":
            self.ends, self.moved = [before], self.after
        if form == "second_step":  # w is what first_step started from
            self.ends, self.moved = [FORMS["first_step"](None).weights(), self.after], before

    def make(self):
        """A scene at its start: the last one, if nothing went wrong with it, or a new one."""
        scene, self.spare = self.spare, None
        if scene is None:
            return FORMS[self.form](self.recipe)
        scene.rewind()
        return scene

    def time(self):
        scene, clock = self.make(), time.perf_counter()
        scene.act(scene)
        return time.perf_counter() - clock

    def timed(self, number, hits, seed=0):
        """Signals at random moments, until `hits` of them have hit."""
        tally, chance = Tally(), random.Random(f"{self.form} {number} {seed}")
        with Heard(number):
            for _ in range(3 * hits):
                if tally.hits < hits:
                    self.hit(Timer(chance.uniform(1e-6, 1.2 * self.duration)), tally)
        return tally

    def at_opcodes(self, number, every=1, offset=0, leaving=False, last=False):
        """A signal at every such opcode, the first time it is reached, and the last if asked."""
        count, tally = Opcode(leaving=leaving), Tally()
        self.hit(count, tally)
        visits = [(place, 1) for place in count.visits]
        if last:
            visits += [(place, times) for place, times in count.visits.items() if times > 1]
        with Heard(number):
            for place, visit in visits[offset % every :: every]:
                self.hit(Opcode(number, place, visit, leaving), tally)
        return tally

    def hit(self, injector, tally):
        """Make a scene, attack it, and note what is wrong while the exception is kept."""
        scene = self.make()
        flags, handlers = scene.flags(), all_handlers()
        injector.ready(scene)
        kept = None
        try:
            with injector:
                scene.act(scene)
        except ERRORS as error:
            kept = error
        except Exception as error:  # what an earlier hit left behind
            tally.take(error, [f"stuck: a later step ends in {type(error).__name__}: {error}"])
            return
        finally:
            injector.stop()
        grad_mode = torch.is_grad_enabled()
        torch.set_grad_enabled(True)  # torch's own contexts are not proof against signals
        if kept is None:
            assert same(scene.weights(), self.after), "the step is not the same each time"
            if self.form == "first_step":
                scene.finish(scene)
            self.spare = scene
            return
        wrongs = list(self.wrongs(scene, kept))
        if all_handlers() != handlers:
            wrongs.append("handlers")
            for number, handler in handlers.items():
                if signal.getsignal(number) is not handler:
                    signal.signal(number, handler)
        if scene.flags() != flags or (injector.ours_only and not grad_mode):
            wrongs.append("flags")
        tally.take(kept, wrongs)
        self.spare = None if wrongs else scene

    def wrongs(self, scene, error):
        codes = [code for code, _ in frames_of(error)]
        weights, moved = scene.weights(), False
        in_base = any(code.co_filename == BASE for code in codes)  # what that does is its business
        if not in_base and not any(same(weights, end) for end in self.ends):
            begun = any(ours(code) and code.co_name == "first_step" for code in codes)
            moved = self.moved is not None and same(weights, self.moved) and not begun
            if not moved:
                yield "weights"
        for name, value in scene.own().items():
            if not any(same(value, own[name]) for own in self.own):
                yield f"EMA: {name} is half-updated"
        try:
            (scene.finish if moved else scene.go_on)(scene)
        except Exception as failure:  # whatever it is, the optimizer is of no more use
            yield f"stuck: {type(failure).__name__}: {failure}"
        else:
            left = scene.weights()
            if same(left, weights) or not all(weight.isfinite().all() for weight in left):
                yield "stuck: the next step does nothing"


def ours(code):
    return code.co_filename.startswith(OURS)


def frames_of(error):
    step, found = error.__traceback__, []
    while step is not None:
        found.append((step.tb_frame.f_code, step.tb_lineno))
        step = step.tb_next
    return found


def place_of(error):
    frames = [each for each in frames_of(error) if each[0].co_filename != __file__]
    named = (f"{Path(code.co_filename).name}:{line} {code.co_name}" for code, line in frames[::-1])
    return " < ".join(list(named)[:5])


def same(left, right):
    """Whether two lists of tensors are equal, bit for bit."""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(left, right)
    )


def all_handlers():
    return {number: signal.getsignal(number) for number in signal.valid_signals()}
