"""A few of the bad days of `make faults`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_killed_stopped_cramped_and_damaged_runs_end_as_if_left_alone() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("faults.py")), "--count", "3"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    for kind in ("kill -9: sent", "SIGTERM: sent", "full disk: tried", "damage: tried"):
        assert kind in done.stdout
