from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import leaving
import pytest
import torch
from distributed_runs import RUNS, main
from lab_runs import final_state, same

from friendly_sam.lab.records.run import read_run

EQUAL = sorted(set(RUNS) - {"ddp-cnn", "fsdp-cnn", "ddp-local"})
"""Runs without BatchNorm, whose statistics are each process's own, and without m-sharpness."""


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*command, "--nproc-per-node", "2", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do all runs with two processes."""
    folder = tmp_path_factory.mktemp("two")
    script = Path(__file__).with_name("distributed_runs.py")
    done = torchrun(leaving.__file__, str(script), str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do all runs with one process."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("one")
    main(folder)
    return folder


@pytest.mark.parametrize("name", EQUAL)
def test_two_processes_train_as_one(name: str, one: Path, two: Path) -> None:
    alone, together = final_state(one / name), final_state(two / name)
    assert len(together["processes"]) == 2
    for key, weight in alone["model"].items():
        torch.testing.assert_close(weight, together["model"][key], rtol=1e-4, atol=1e-6)
    for first, second in zip(
        read_run(one / name).metrics, read_run(two / name).metrics, strict=True
    ):
        for key in set(first) - {"seconds"}:
            assert first[key] == pytest.approx(second[key], rel=1e-4), key


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_resume_bit_for_bit(name: str, two: Path) -> None:
    assert read_run(two / f"{name}-cut").finished
    assert same(final_state(two / f"{name}-cut"), final_state(two / name))


def test_each_process_keeps_its_own_average_only_where_it_climbs_alone(two: Path) -> None:
    shared, own = final_state(two / "ddp"), final_state(two / "ddp-local")
    assert "optimizer" not in shared["processes"][0]
    first, second = (process["optimizer"]["state"] for process in own["processes"])
    assert not same(first, second)
    assert not same(own["model"], shared["model"])


def test_the_command_line_runs_under_torchrun(tmp_path: Path) -> None:
    arguments = ["-m", "friendly_sam.lab", "train", "--preset", "digits-cnn-fsam"]
    arguments += ["--epochs", "2", "--engine.threads", "1", "--output", str(tmp_path / "run")]
    done = torchrun(*arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("epoch 2/2") == 1
    run = read_run(tmp_path / "run")
    assert run.finished
    assert len(run.metrics) == 2
