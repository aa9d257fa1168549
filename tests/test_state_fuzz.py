"""Promise 3: a state dict that does not fit is refused whole, in one line, with nothing changed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_fuzz import (
    BASE_NAMES,
    METHODS,
    SCHEDULE,
    all_damages,
    start,
    try_damages,
    try_schedule,
)

FINE = ("refused", "loaded")
quick = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)


@pytest.mark.parametrize("base", BASE_NAMES)
@pytest.mark.parametrize("method", METHODS)
def test_a_damaged_state_dict_is_refused_whole_or_works(method, base):
    """Issue 21, line 8."""
    one = st.sampled_from(all_damages(start(method, base)[1].state_dict()))

    @quick
    @given(st.lists(one, min_size=1, max_size=2))
    def check(found):
        assert try_damages(method, base, found) in FINE

    check()


@settings(quick, max_examples=100)
@given(st.lists(st.sampled_from(SCHEDULE), min_size=1, max_size=2))
def test_a_damaged_radius_schedule_is_refused_whole_or_works(found):
    assert try_schedule(found) in FINE
