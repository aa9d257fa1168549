"""Promise 2: a signal at any moment leaves everything as it was, while its traceback is kept.

A sample in the ordinary run; `make attack` tries ten times as many moments and every opcode.
"""

import signal

import pytest
from family import FAMILY
from injector import Attack, Heard, Tally, Timer, all_handlers
from step_forms import FORMS, LEAVING, form_of

SIGNALS = ("SIGINT", "SIGALRM")
HITS = 40
EVERY = 34  # for each of two signals, so that every 17th opcode is hit by one of them


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("form", FORMS)
def test_a_signal_at_any_moment_leaves_everything_as_it_was(form, name):
    """Issue 21, lines 3 and 12: Ctrl-C, and a time-out whose handler raises."""
    tally = Attack(form).timed(getattr(signal, name), HITS)
    assert tally.hits > HITS / 2
    assert not tally.wrong, tally


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("recipe", FAMILY)
def test_a_signal_leaves_everything_as_it_was_with_every_recipe(recipe, name):
    form = form_of(name == "SIGINT")
    tally = Attack(form, recipe).timed(getattr(signal, name), HITS // 2)
    assert tally.hits > HITS / 4
    assert not tally.wrong, tally


@pytest.mark.parametrize("name", ["SIGINT", "SIGUSR1"])
@pytest.mark.parametrize("form", FORMS)
def test_a_signal_at_every_17th_opcode_leaves_everything_as_it_was(form, name):
    offset = 3 * list(FORMS).index(form) + 17 * (name == "SIGINT")
    tally = Attack(form).at_opcodes(getattr(signal, name), EVERY, offset)
    assert tally.hits > 0
    assert not tally.wrong, tally


def test_a_signal_at_any_opcode_of_entering_a_context_leaves_everything_as_it_was():
    """Between the flags and the body nobody has entered the `with`, so nobody would leave it."""
    tally = Attack("frozen_statistics").at_opcodes(signal.SIGINT, 1, 0)
    assert tally.hits > 100
    assert not tally.wrong, tally


@pytest.mark.parametrize("name", ["SIGINT", "SIGUSR1"])
@pytest.mark.parametrize("form", LEAVING)
def test_a_signal_at_any_opcode_of_leaving_a_context_leaves_everything_as_it_was(form, name):
    """Issue 21, line 3: a notebook keeps the traceback, and with it what should clean up."""
    offset = int(name == "SIGINT")  # every opcode by one of the two signals
    tally = Attack(form).at_opcodes(getattr(signal, name), 2, offset, leaving=True)
    assert tally.hits > 5
    assert not tally.wrong, tally


def test_the_injector_notices_weights_flags_handlers_and_emas_that_are_wrong():
    """So that the tests above are able to fail."""
    attack, tally = Attack("step(closure)"), Tally()
    scene, before = attack.make(), signal.getsignal(signal.SIGTERM)

    def spoil(scene):
        scene.model.narrow.weight.data.add_(1)
        scene.model.idle[0].track_running_stats = False
        next(iter(scene.optimizer.memory.tensors("ema").values())).add_(1)
        signal.signal(signal.SIGTERM, lambda *_: None)
        raise KeyboardInterrupt

    scene.act, attack.make = spoil, lambda: scene
    attack.hit(Timer(0), tally)
    assert dict(tally.wrong) == {"weights": 1, "flags": 1, "handlers": 1, "EMA": 1}
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_injector_leaves_the_handlers_it_found():
    before = all_handlers()
    with Heard(signal.SIGINT):
        assert all_handlers() != before
    assert all_handlers() == before
