from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_runs import Tiny, checkpoint, final_state, same

from friendly_sam.lab.config.identity import identity
from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.settings import as_trial, changed
from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.records import recorder as records
from friendly_sam.lab.records.run import read_run, run_state
from friendly_sam.lab.report.groups import group_runs
from friendly_sam.lab.report.runs import _curves
from friendly_sam.lab.training.trainer import train


class Stop:
    """A listener that interrupts a run after some steps, as Ctrl-C would."""

    def __init__(self, after: int) -> None:
        self.left = after

    def step(self, epoch: int, batch: int, batches: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def epoch(self, metrics: dict[str, float]) -> None:
        pass


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method: str, tiny: Tiny) -> None:
    # FisherSAM and ASAM have larger radii; all of them beat guessing (10 %) by far.
    run = read_run(train(tiny(method={"name": method}, base={"lr": 0.1}, epochs=6)))
    assert run.finished
    assert run.final("test_accuracy") > 50
    losses = run.series("train_loss")
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": {"precision": "bf16"}},
        {"engine": {"precision": "fp16"}},
        {"engine": {"precision": "fp16", "clip_norm": 1.0}, "method": {"every": 2}},
        {"engine": {"precision": "fp16"}, "method": {"name": "sam-full"}},
        {"engine": {"channels_last": True}, "model": "cnn"},
        {"engine": {"micro_batches": 3}, "model": "cnn"},
        {"base": {"name": "adamw", "lr": 0.01}},
        {"data": {"flip": True, "crop_padding": 1, "cutout": 2, "validation_size": 50}},
        {"data": {"label_noise": 0.2, "drop_last": True, "classes": (3, 5, 8)}},
        {"method": {"name": "asam", "only": "weight"}},
        {"method": {"replay_rng": True}},
    ],
)
def test_every_option_runs(settings: dict[str, Any], tiny: Tiny) -> None:
    run = read_run(train(tiny(**settings, epochs=3)))
    assert run.series("train_loss")[-1] < run.series("train_loss")[0]
    assert ("validation_loss" in run.metrics[0]) == ("validation_size" in settings.get("data", {}))


def test_held_out_images_are_measured_every_few_epochs_and_after_the_last(tiny: Tiny) -> None:
    data = {"validation_size": 40}
    often = read_run(train(tiny("often", data=data, epochs=5)))
    seldom = read_run(train(tiny("seldom", data=data, epochs=5, engine={"eval_epochs": 2})))
    for name in ("test_accuracy", "validation_loss"):
        assert seldom.epochs(name) == [2, 4, 5]
        assert seldom.series(name) == [often.series(name)[epoch - 1] for epoch in (2, 4, 5)]
    assert seldom.series("train_loss") == often.series("train_loss")
    (curve,) = _curves(group_runs([seldom]), "test_accuracy", "test accuracy, %").series
    assert list(curve.x) == [2, 4, 5]


def test_a_trial_never_looks_at_the_test_images_and_learns_the_same(tiny: Tiny) -> None:
    whole = tiny("whole", data={"validation_size": 40}, epochs=3)
    trial = as_trial(tiny("trial", data={"validation_size": 40}, epochs=3))
    seen, blind = read_run(train(whole)), read_run(train(trial))
    assert not blind.series("test_accuracy")
    assert not blind.series("test_loss")
    assert blind.series("train_loss") == seen.series("train_loss")
    assert blind.series("validation_accuracy") == seen.series("validation_accuracy")
    assert identity(whole) != identity(trial) == identity(as_trial(whole))
    assert as_trial(changed(whole, {"engine.eval_epochs": 2})).engine.eval_epochs == 3


def test_one_seed_is_one_result_and_another_is_another(tiny: Tiny) -> None:
    first = final_state(train(tiny("a", model="cnn", data={"label_noise": 0.3})))
    second = final_state(train(tiny("b", model="cnn", data={"label_noise": 0.3})))
    other = final_state(train(tiny("c", model="cnn", data={"label_noise": 0.3}, seed=1)))
    assert same(first, second)
    assert not same(first["model"], other["model"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"name": "base"}, {"name": "sam", "rho": 0.0}),
        ({"name": "base"}, {"name": "fsam", "rho": 0.0}),
        ({"name": "sam", "rho": 0.1}, {"name": "fsam", "rho": 0.1, "sigma": 0.0}),
        ({"name": "sam", "rho": 0.1}, {"name": "sam", "rho": 0.1, "ascent_fraction": 1.0}),
    ],
)
def test_reductions_hold_through_the_engine(
    first: dict[str, Any], second: dict[str, Any], tiny: Tiny
) -> None:
    weights = [
        final_state(train(tiny(str(number), method=method, model="cnn")))["model"]
        for number, method in enumerate((first, second))
    ]
    assert same(*weights)


def test_micro_batches_change_rounding_only(tiny: Tiny) -> None:
    whole = final_state(train(tiny("whole")))["model"]
    cut = final_state(train(tiny("cut", engine={"micro_batches": 5})))["model"]
    for name, weight in whole.items():
        torch.testing.assert_close(weight, cut[name], rtol=1e-4, atol=1e-6)


RESUMED: list[dict[str, Any]] = [
    {"model": "cnn"},
    {"model": "cnn", "method": {"name": "fsam", "every": 2}, "base": {"name": "adamw"}},
    {"method": {"name": "fsam", "variant": "debiased"}, "engine": {"precision": "fp16"}},
    {"method": {"name": "sam-db"}, "data": {"flip": True, "cutout": 2}},
    {"method": {"name": "sam", "ascent_batches": 3}, "data": {"validation_size": 40}},
    {"model": "vgg8_bn", "data": {"image_size": 16, "train_size": 130}},  # dropout
]


@pytest.mark.parametrize("settings", RESUMED)
def test_an_interrupted_run_goes_on_bit_for_bit(settings: dict[str, Any], tiny: Tiny) -> None:
    engine = {"checkpoint_steps": 2, **settings.get("engine", {})}
    alone = train(tiny("alone", **settings))
    config = tiny("cut", **{**settings, "engine": engine})
    folder = Path(str(config.output))
    batches = 2 if "train_size" not in settings.get("data", {}) else 1
    for after in (4 + batches + 1, 1):  # in the second epoch, past a checkpoint; then at once
        with pytest.raises(KeyboardInterrupt):
            train(config, resume=True, listener=Stop(after))
        assert run_state(folder) == "running"
    train(config, resume=True)
    assert same(final_state(folder), final_state(alone))
    first, second = read_run(folder).metrics, read_run(alone).metrics
    for one, other in zip(first, second, strict=True):
        assert {k: v for k, v in one.items() if k != "seconds"} == {
            k: v for k, v in other.items() if k != "seconds"
        }
    assert len(read_run(folder).environment["starts"]) == 3


def test_a_damaged_checkpoint_costs_only_the_time_since_the_one_before(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = final_state(train(tiny("alone")))
    config = tiny("cut", engine={"checkpoint_steps": 1})
    folder = Path(str(config.output))
    with pytest.raises(KeyboardInterrupt):
        train(config, listener=Stop(6))
    last = checkpoint(folder)
    last.write_bytes(last.read_bytes()[:-100])
    train(config, resume=True)
    said = capsys.readouterr().out
    assert said.startswith(f"damaged: {last}; going on from ")
    assert said.count("\n") == 1
    assert same(final_state(folder), alone)
    assert [line["epoch"] for line in read_run(folder).metrics] == [1, 2]


def test_a_finished_run_is_left_alone_and_another_is_refused(tiny: Tiny) -> None:
    config = tiny()
    folder = train(config)
    before = (folder / "status.json").read_bytes()
    assert train(config, resume=True) == folder
    assert (folder / "status.json").read_bytes() == before
    with pytest.raises(LabError, match="already holds a finished run"):
        train(config)
    with pytest.raises(LabError, match=r"already holds another run \(base.lr is 0.05 there"):
        train(tiny(base={"lr": 0.1}))
    with pytest.raises(LabError, match=r"holds another run: base.lr is 0.05 there and 0.1 here"):
        train(tiny(base={"lr": 0.1}), resume=True)


def test_a_run_cut_off_as_it_began_starts_again_and_a_foreign_folder_is_left_alone(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny()
    folder = Path(str(config.output))
    writes: list[Path] = []

    def dying(path: Path, content: str) -> None:
        writes.append(path)
        raise KeyboardInterrupt

    names = ("config.yaml", "status.json", "environment.json", "metrics.jsonl")
    for name in names:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            original = records.write_atomically
            patch.setattr(
                records,
                "write_atomically",
                lambda path, content, name=name, original=original: (
                    dying(path, content) if path.name == name else original(path, content)
                ),
            )
            train(config, resume=True)
    assert tuple(path.name for path in writes) == names
    assert not (folder / "checkpoints").exists()
    assert read_run(train(config, resume=True)).finished
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(LabError, match="is not empty and holds no run"):
        train(tiny("mine"), resume=True)


def test_a_checkpoint_of_another_model_is_refused(tiny: Tiny) -> None:
    config, other = tiny("a", model="cnn"), tiny("b", model="mlp")
    with pytest.raises(KeyboardInterrupt):
        train(config, listener=Stop(6))
    folder = train(other)
    checkpoints = Path(str(config.output)) / "checkpoints"
    shutil.rmtree(checkpoints)
    shutil.copytree(folder / "checkpoints", checkpoints)
    with pytest.raises(LabError, match=r"another run: model\.name is mlp there and cnn here"):
        train(config, resume=True)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_loss_that_is_no_number_stops_the_run(precision: str, tiny: Tiny) -> None:
    config = tiny(base={"lr": 1e9}, engine={"precision": precision}, model="cnn")
    with pytest.raises(RunError, match=r"the loss is (nan|inf) in epoch 1"):
        train(config)
    run = read_run(Path(str(config.output)))
    assert run.state == "failed"
    assert "the loss is" in run.message
    assert not (run.folder / "checkpoints").exists()


def test_best_is_kept_by_validation_accuracy(tiny: Tiny) -> None:
    folder = train(tiny(data={"validation_size": 60}, epochs=5))
    best = torch.load(checkpoint(folder, "best"), weights_only=True)
    scores = read_run(folder).series("validation_accuracy")
    assert best["position"]["best"] == max(scores)
    assert best["position"]["epoch"] == scores.index(max(scores)) + 1


def test_weights_of_another_run_can_be_started_from(tiny: Tiny) -> None:
    source = train(tiny("source", model="cnn", data={"classes": (0, 1, 2, 3, 4)}, epochs=4))
    config = tiny("target", model="cnn", data={"classes": (5, 6, 7, 8, 9)}, epochs=1)
    model = type(config.model)(name="cnn", weights=str(source))
    warm = read_run(train(tiny("warm", data={"classes": (5, 6, 7, 8, 9)}, model="cnn", epochs=1)))
    cold = train(config.__class__(**{**vars(config), "model": model}))
    assert read_run(cold).final("train_loss") != warm.final("train_loss")
    bad = type(config.model)(name="mlp", weights=str(source))
    with pytest.raises(LabError, match=r"no weight of .* fits mlp"):
        train(config.__class__(**{**vars(config), "model": bad, "output": str(source) + "x"}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": {"batch_size": 251}}, "data.batch_size must be at most the 250 training images"),
        ({"method": {"ascent_batches": 5}}, "must be at most the 4 batches of an epoch, got 5"),
        ({"engine": {"device": "warp"}}, "engine.device=warp cannot be used"),
        ({"data": {"name": "digit"}}, "digit"),
        ({"model": "resnet19"}, "resnet18"),
    ],
)
def test_what_cannot_run_leaves_no_folder(
    settings: dict[str, Any], message: str, tiny: Tiny, tmp_path: Path
) -> None:
    with pytest.raises((LabError, ValueError), match=message):
        train(tiny(**settings))
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch's own import
def test_a_compiled_network_trains_the_same(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    # The graph is captured and differentiated as always; C++ is not generated: no compiler here.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    plain = final_state(train(tiny("plain", epochs=1)))["model"]
    compiled = final_state(train(tiny("compiled", epochs=1, engine={"compile": True})))["model"]
    assert compiled.keys() == plain.keys()
    for name, weight in plain.items():
        torch.testing.assert_close(weight, compiled[name], rtol=1e-3, atol=1e-5)
