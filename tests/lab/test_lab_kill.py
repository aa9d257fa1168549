"""`kill -9` in the middle of an epoch, through the command line, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lab_runs import Fsam, final_state, same

from friendly_sam.lab.records import read_run

SETTINGS = [
    "--preset", "digits-cnn-fsam", "--epochs", "6", "--engine.threads", "1",
    "--engine.checkpoint_steps", "20", "--data.batch_size", "16",
]  # fmt: skip


def test_a_killed_run_ends_with_the_weights_of_one_left_alone(fsam: Fsam, tmp_path: Path) -> None:
    assert fsam("train", *SETTINGS, "--output", "alone").returncode == 0

    process = subprocess.Popen(
        [sys.executable, "-m", "friendly_sam.lab", "train", *SETTINGS, "--output", "killed"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch 2/6"):
            break
    time.sleep(0.15)  # an epoch takes longer than that: it dies in the third or fourth
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()

    cut = read_run(tmp_path / "killed")
    assert cut.state == "running"
    assert 2 <= len(cut.metrics) < 6
    done = fsam("train", "--resume", "--output", "killed")
    assert done.returncode == 0, done.stderr
    assert same(final_state(tmp_path / "killed"), final_state(tmp_path / "alone"))
    killed, alone = read_run(tmp_path / "killed"), read_run(tmp_path / "alone")
    assert [m["test_loss"] for m in killed.metrics] == [m["test_loss"] for m in alone.metrics]
    assert killed.finished
    start = killed.environment["starts"][1]
    assert start["epoch"] >= 2
