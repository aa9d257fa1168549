"""`kill -9` in the middle of an epoch, through the command line, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lab_runs import Fsam, final_state, same
from system_calls import SUPPORTED

from friendly_sam.lab.records.run import read_run

SETTINGS = [
    "--preset", "digits-cnn-fsam", "--epochs", "6", "--engine.threads", "1",
    "--engine.checkpoint_steps", "20", "--data.batch_size", "16",
]  # fmt: skip


def _start(folder: Path, name: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "friendly_sam.lab", "train", *SETTINGS, *more, "--output", name],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _read_until(process: subprocess.Popen[str], start: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return
    raise AssertionError(f"no line starts with {start!r}")


def test_a_killed_run_ends_with_the_weights_of_one_left_alone(fsam: Fsam, tmp_path: Path) -> None:
    assert fsam("train", *SETTINGS, "--output", "alone").returncode == 0

    process = _start(tmp_path, "killed")
    _read_until(process, "epoch 2/6")
    time.sleep(0.15)  # an epoch takes longer than that: it dies in the third or fourth
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL

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


def test_sigterm_writes_a_checkpoint_of_the_last_step_and_stops(fsam: Fsam, tmp_path: Path) -> None:
    never = ("--engine.checkpoint_steps", "0", "--engine.checkpoint_epochs", "0")
    assert fsam("train", *SETTINGS, *never, "--output", "alone").returncode == 0

    process = _start(tmp_path, "stopped", *never)
    _read_until(process, "epoch 2/6")
    time.sleep(0.15)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert error.strip() == (
        "fsam: stopped by SIGTERM, nothing is lost: --resume goes on at the last step"
    )

    cut = read_run(tmp_path / "stopped")
    assert cut.state == "running"
    done = fsam("train", "--resume", "--output", "stopped")
    assert done.returncode == 0, done.stderr
    assert same(final_state(tmp_path / "stopped"), final_state(tmp_path / "alone"))
    stopped, alone = read_run(tmp_path / "stopped"), read_run(tmp_path / "alone")
    assert [m["test_loss"] for m in stopped.metrics] == [m["test_loss"] for m in alone.metrics]
    assert stopped.environment["starts"][1]["epoch"] >= 2, "nothing was done twice"


def test_a_second_process_is_kept_out_of_the_folder(fsam: Fsam, tmp_path: Path) -> None:
    process = _start(tmp_path, "shared", "--epochs", "200")
    _read_until(process, "epoch   1/200")
    second = fsam("train", "--resume", "--output", "shared")
    assert second.returncode == 2
    assert "another process is writing to shared" in second.stderr
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143, error
    assert read_run(tmp_path / "shared").state == "running"


def test_a_sample_of_kills_stops_and_full_disks_at_system_calls_and_of_damage() -> None:
    """Some of `make attack`: nothing is lost, nothing is changed."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kills.py")), "--sample", "4",
         "--others", "2", "--flips", "500", "--damages", "10", "--fresh", "0", "--only", "train"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    if SUPPORTED:
        assert done.stdout.count(" | 4 | 2 | 2 | 0 | 0 | 0 |") == 4
        assert "| flipped bits | 500 | 500 | 0 |" in done.stdout
