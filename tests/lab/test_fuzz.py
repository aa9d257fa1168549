"""Input by machine: it runs, or it is refused in one line with nothing changed.

A few of the bad inputs of `make attack`; `FUZZ=50 pytest tests/lab/test_fuzz.py` tries 50 times as
many.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from bad_values import VALUES, leaves
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab_runs import same

from friendly_sam import FriendlySAM

FACTOR = int(os.environ.get("FUZZ", "1"))
FEW = settings(max_examples=25 * FACTOR, deadline=None, suppress_health_check=list(HealthCheck))


def test_a_few_bad_inputs_of_each_kind_end_in_one_line() -> None:
    script = Path(__file__).with_name("hostile.py")
    done = subprocess.run(
        [sys.executable, str(script), "--count", str(25 * FACTOR)],
        cwd=script.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600 * FACTOR,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "| data |" in done.stdout


def optimizer() -> FriendlySAM:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    built = FriendlySAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 0.1)

    def closure() -> torch.Tensor:
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        return loss

    built.step(closure)
    return built


@settings(FEW, max_examples=100 * FACTOR)
@given(st.data())
def test_any_state_dict_is_loaded_or_refused_and_then_nothing_changed(data: st.DataObject) -> None:
    tried = optimizer()
    state = copy.deepcopy(tried.state_dict())
    paths = leaves(state)
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=2)):
        place: Any = state
        for key in path[:-1]:
            place = place[key] if isinstance(place, dict) and key in place else None
        if isinstance(place, dict):
            if data.draw(st.booleans()):
                place.pop(path[-1], None)
            else:
                place[path[-1]] = data.draw(VALUES | st.just(torch.ones(5)))
    before, refusal = copy.deepcopy(tried.state_dict()), None
    try:
        tried.load_state_dict(state)
    except Exception as error:
        refusal = error
    if refusal is not None:
        assert str(refusal)
        assert same(tried.state_dict(), before), "a refused state_dict changed the optimizer"
