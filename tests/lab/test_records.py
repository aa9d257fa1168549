from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from lab_runs import Tiny

from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.records.recorder import Recorder
from friendly_sam.lab.records.run import read_run, run_state
from friendly_sam.lab.training.trainer import train


def recorder(config: RunConfig) -> Recorder:
    """Give a recorder of a new folder."""
    Path(str(config.output)).mkdir()
    return Recorder(Path(str(config.output)), config)


def test_a_run_leaves_all_its_records(tiny: Tiny) -> None:
    config = resolve(tiny(engine={"tensorboard": True}))
    run = read_run(train(config))
    assert run.finished
    assert run.config == config
    assert [line["epoch"] for line in run.metrics] == [1, 2]
    assert {"train_loss", "train_accuracy", "test_loss", "test_accuracy", "lr"} <= set(
        run.metrics[0]
    )
    start = run.environment["starts"][0]
    assert start["packages"]["torch"]
    assert start["cores"] >= 1
    assert list((run.folder / "tensorboard").glob("events.*"))
    names = {path.name for path in run.folder.iterdir()}
    assert {"config.yaml", "environment.json", "metrics.jsonl", "status.json"} <= names


def test_metrics_can_be_read_while_the_run_goes_on(tiny: Tiny) -> None:
    config = tiny()
    seen = []

    class Reader:
        def step(self, epoch: int, batch: int, batches: int) -> None:
            pass

        def epoch(self, metrics: dict[str, float]) -> None:
            run = read_run(Path(str(config.output)))
            seen.append((run.state, len(run.metrics)))

    train(config, listener=Reader())
    assert seen == [("running", 1), ("running", 2)]


def test_a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error(tiny: Tiny) -> None:
    folder = train(tiny())
    path = folder / "metrics.jsonl"
    (folder / "status.json").write_text('{"state": "running"}')
    with path.open("a") as file:
        file.write('{"epoch": 3, "train_lo')
    assert len(read_run(folder).metrics) == 2
    path.write_text('{"epoch": 1\n' + path.read_text())
    with pytest.raises(LabError, match="line 1 is damaged"):
        read_run(folder)


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"state": "asleep"}'])
def test_a_foreign_folder_is_one_clear_error(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_text("epochs: 3\n")
        (tmp_path / "status.json").write_text(content)
    with pytest.raises(LabError) as caught:
        read_run(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(LabError, match="does not exist"):
        read_run(tmp_path / "nowhere")


def test_a_failure_is_marked_and_an_interrupt_is_left_open(tiny: Tiny) -> None:
    for name, error, state in (
        ("a", ValueError("no luck"), "failed"),
        ("b", KeyboardInterrupt(), "running"),
        ("c", BrokenPipeError(), "running"),
    ):
        config = resolve(tiny(name))
        folder = Path(str(config.output))
        with pytest.raises(type(error)), recorder(config):
            raise error
        assert run_state(folder) == state
        assert not read_run(folder).finished
    assert read_run(folder.parent / "a").message == "no luck"


def test_what_the_checkpoint_does_not_know_is_cut_off(tiny: Tiny) -> None:
    config = resolve(tiny())
    folder = Path(str(config.output))
    with recorder(config) as first:
        first.epoch({"epoch": 1})
        position, digest = first.sync()
        first.epoch({"epoch": 2})
    with Recorder(folder, config, position=position, digest=digest, epoch=1) as again:
        assert again.sync() == (position, digest)
        again.epoch({"epoch": 2, "again": 1})
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"epoch": 1}, {"epoch": 2, "again": 1}]
    with pytest.raises(LabError, match="the checkpoint knows of 10000"):
        Recorder(folder, config, position=10_000)


def test_one_flipped_bit_in_the_records_is_noticed(tiny: Tiny) -> None:
    config = resolve(tiny())
    folder = Path(str(config.output))
    with recorder(config) as whole_run:
        whole_run.epoch({"epoch": 1, "test_accuracy": 81.25})
        position, digest = whole_run.sync()
        whole_run.finish()
    assert read_run(folder).final("test_accuracy") == 81.25
    for name in ("metrics.jsonl", "config.yaml"):
        path = folder / name
        whole = path.read_bytes()
        at = whole.index(b"2") if name == "metrics.jsonl" else whole.index(b"0")
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LabError, match=f"{name} is damaged: it is not what the finished run"):
            read_run(folder)
        if name == "metrics.jsonl":
            with pytest.raises(LabError, match="it is not what the checkpoint knows of"):
                Recorder(folder, config, position=position, digest=digest)
        path.write_bytes(whole)
    assert read_run(folder).finished


def test_tensorboard_reads_the_metrics(tiny: Tiny) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    run = read_run(train(tiny(engine={"tensorboard": True})))
    (path,) = (run.folder / "tensorboard").iterdir()
    events = list(EventFileLoader(str(path)).Load())
    seen = {
        (event.step, value.tag): value.tensor.float_val[0]
        for event in events
        for value in event.summary.value
    }
    for line in run.metrics:
        assert seen[line["epoch"], "test/accuracy"] == pytest.approx(line["test_accuracy"])


def test_a_full_disk_under_tensorboard_fails_in_one_line(tiny: Tiny) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    metrics, threads = {"epoch": 1, "test_accuracy": 1.0}, threading.active_count()
    with recorder(tiny(engine={"tensorboard": True})) as written:
        assert threading.active_count() == threads, "one that fails prints a traceback of its own"
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            with pytest.raises(RunError, match=r"cannot write metrics to .*: File too large"):
                written.epoch(metrics)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
