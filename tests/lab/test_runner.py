from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from lab_runs import Tiny, checkpoint, final_state, same

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run, run_state
from friendly_sam.lab.runner import pool
from friendly_sam.lab.runner.pool import run_all
from friendly_sam.lab.training.trainer import train


def test_runs_are_done_skipped_resumed_and_one_failure_stops_no_other(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stop:
        def step(self, epoch: int, batch: int, batches: int) -> None:
            if (epoch, batch) == (2, 3):
                raise KeyboardInterrupt

        def epoch(self, metrics: dict[str, float]) -> None:
            pass

    configs = [
        tiny("done", seed=1),
        tiny("bad", base={"lr": 1e9}, model="cnn"),
        tiny("cut", seed=2),
        tiny("new", seed=3),
    ]
    train(configs[0])
    before = (Path(str(configs[0].output)) / "status.json").stat().st_mtime_ns
    with pytest.raises(KeyboardInterrupt):
        train(configs[2], listener=Stop())
    outcomes = run_all(configs, workers=1)
    assert [outcome.error is None for outcome in outcomes] == [True, False, True, True]
    assert "the loss is" in str(outcomes[1].error)
    assert (outcomes[0].folder / "status.json").stat().st_mtime_ns == before
    assert len(read_run(outcomes[2].folder).environment["starts"]) == 2
    assert same(final_state(outcomes[2].folder), final_state(train(tiny("alone", seed=2))))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert any(line.split("] ")[1].startswith("bad: FAILED: the loss is") for line in lines)
    assert "left" in lines[0]


def test_a_killed_worker_takes_one_run_with_it(tiny: Tiny) -> None:
    configs = [tiny("long", epochs=5000), tiny("short", seed=1)]

    def kill() -> None:
        for _ in range(6000):
            if run_state(Path(str(configs[0].output))) == "running":
                break
            time.sleep(0.05)
        for process in multiprocessing.active_children():
            process.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    outcomes = run_all(configs, workers=1, verbose=False)
    thread.join()
    assert outcomes[0].error == "its process died (signal SIGKILL)"
    assert outcomes[1].error is None
    assert run_state(outcomes[0].folder) == "running"


def test_ctrl_c_leaves_everything_resumable(tmp_path: Path) -> None:
    script = """
import signal
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from lab_runs import tiny_config
from friendly_sam.lab.runner import pool
from friendly_sam.lab.runner.pool import run_all
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored behind a shell's `&`
    root = Path(sys.argv[1])
    run_all([tiny_config(root / str(s), seed=s, epochs=5000) for s in range(2)], workers=1)
"""
    (tmp_path / "script.py").write_text(script)
    process = subprocess.Popen(
        [sys.executable, "script.py", "runs", str(Path(__file__).parent)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    metrics = tmp_path / "runs" / "0" / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and metrics.stat().st_size:
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert error.splitlines()[-1] == "KeyboardInterrupt"
    assert "spawn" not in error  # the worker said nothing
    assert run_state(tmp_path / "runs" / "0") == "running"
    assert read_run(tmp_path / "runs" / "0").metrics


def test_a_worker_whose_parent_has_gone_stops_with_a_checkpoint_and_does_not_fail(
    tiny: Tiny,
) -> None:
    config, handler = tiny(epochs=5000), signal.getsignal(signal.SIGINT)
    parent, worker = multiprocessing.Pipe()
    parent.send(config)
    parent.close()
    try:
        pool._work(worker, 1)  # returns: nobody is there to tell
    finally:
        signal.signal(signal.SIGINT, handler)
    run = read_run(Path(str(config.output)))
    assert run.state == "running"
    assert run.message == ""
    assert checkpoint(run.folder).is_file()


def test_a_closed_stdout_cuts_a_run_off_and_does_not_fail_it(tiny: Tiny) -> None:
    class Gone:
        def step(self, epoch: int, batch: int, batches: int) -> None:
            pass

        def epoch(self, metrics: dict[str, float]) -> None:
            raise BrokenPipeError(32, "Broken pipe")

    config = tiny()
    with pytest.raises(BrokenPipeError):
        train(config, listener=Gone())
    assert run_state(Path(str(config.output))) == "running"
    assert same(final_state(train(config, resume=True)), final_state(train(tiny("alone"))))


def test_two_runs_cannot_share_a_folder(tiny: Tiny) -> None:
    configs: list[Any] = [tiny("a"), tiny("a", seed=1)]
    with pytest.raises(LabError, match="several runs have the same output folder"):
        run_all(configs)


def test_a_worker_that_is_done_when_its_parent_has_gone_says_nothing(tiny: Tiny) -> None:
    config, handler = tiny(epochs=1), signal.getsignal(signal.SIGINT)
    train(config)
    parent, worker = multiprocessing.Pipe()
    parent.send(config)
    parent.close()
    try:
        pool._work(worker, 1)  # there is nothing to do, and nobody to tell
    finally:
        signal.signal(signal.SIGINT, handler)
    assert read_run(Path(str(config.output))).finished


def test_a_command_whose_reader_has_gone_ends_without_a_word(tmp_path: Path) -> None:
    words = "--preset digits-mlp-fsam --epochs 1 --engine.threads 1 --output run"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "friendly_sam.lab", "train", *words.split()],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
    assert run_state(tmp_path / "run") == "running"
