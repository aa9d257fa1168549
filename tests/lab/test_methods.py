"""One registry: what is in it is everywhere, and reading it needs torch alone."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lab_runs import Tiny, checkpoint, final_state, same

from friendly_sam import Every, From, Policy, Randomly, SharpnessAware
from friendly_sam.lab.cli import main
from friendly_sam.lab.config.components import BATCH_NOISE, DIAGONAL_FISHER, Setting
from friendly_sam.lab.config.methods import (
    METHODS,
    SETTINGS,
    Method,
    build,
    complete,
    find,
)
from friendly_sam.lab.config.policies import policy
from friendly_sam.lab.config.resolve import label, passes, resolve
from friendly_sam.lab.config.schema import BaseConfig, MethodConfig, RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.training.trainer import train


def test_every_setting_is_one_of_the_config() -> None:
    assert set(SETTINGS) <= {field.name for field in dataclasses.fields(MethodConfig)}


def test_no_two_methods_share_colour_and_marker() -> None:
    looks = [(method.colour, method.marker) for method in METHODS.values()]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_found_by_its_name_and_by_its_label(name: str) -> None:
    assert find(name) == find(METHODS[name].label) == name


@pytest.mark.parametrize("name", [n for n, method in METHODS.items() if method.self_contained])
def test_a_self_contained_method_is_built_from_its_settings_alone(name: str) -> None:
    base = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1, momentum=0.9)
    optimizer = build(base, name, complete(name, {"rho": 0.3}))
    assert isinstance(optimizer, SharpnessAware)
    assert optimizer.param_groups[0]["rho"] == 0.3


def test_what_a_method_costs_follows_from_its_entry() -> None:
    def cost(**method: object) -> float:
        return passes(resolve(RunConfig(method=MethodConfig(**method))))  # type: ignore[arg-type]

    assert cost(name="base") == 1
    assert cost(name="sam") == cost(name="sam-db") == 2
    assert cost(name="fsam", ascent_fraction=0.125) == 1.125
    assert cost(name="fsam", every=4) == 1.25
    assert cost(name="msam") == cost(name="stale-sam") == cost(name="stale-fsam") == 1
    assert cost(name="looksam") == 1.2
    assert cost(name="looksam", every=10) == 1.1
    assert cost(name="fsam", start=0.75) == pytest.approx(1.25, abs=1e-3)
    assert cost(name="fsam", probability=0.5) == 1.5
    assert cost(name="sam-noise") == cost(name="sam-full") + 1 > 100


def test_a_new_method_is_one_entry(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = Method(
        label="Mine",
        description="a method of a test",
        colour="black",
        marker="*",
        rho=Setting(0.07, "this test"),
        components=(BATCH_NOISE, DIAGONAL_FISHER),
    )
    monkeypatch.setitem(METHODS, "mine", entry)
    run = read_run(train(tiny(method={"name": "mine", "decay": 0.5})))
    assert run.finished
    assert (run.config.method.rho, run.config.method.decay, run.config.method.eta) == (0.07, 0.5, 1)
    assert label(run.config) == "Mine"
    assert main(["list", "methods"]) == 0
    assert "Mine: a method of a test (rho 0.07," in capsys.readouterr().out


def test_reading_the_registry_needs_torch_and_nothing_else() -> None:
    code = (
        "import sys, torch, friendly_sam; before = set(sys.modules);"
        "import friendly_sam.lab.config.methods; new = set(sys.modules) - before;"
        "names = {name.partition('.')[0] for name in new} - set(sys.stdlib_module_names);"
        "sys.exit(str(names - {'friendly_sam', 'torch'}) if names > {'friendly_sam'} else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


QUICK = ["--engine.threads", "1", "--engine.tensorboard", "false", "--engine.device", "cpu"]
SMALL = ["--data.train_size", "200", "--data.test_size", "50", "--epochs", "2", *QUICK]
POLICIES = [
    ("fsam", "--method.every", "2"),
    ("sam", "--method.start", "0.5"),
    ("gsam", "--method.start", "2"),
    ("fsam", "--method.probability", "0.5"),
    ("msam", "--method.every", "2"),
]


@pytest.mark.parametrize(
    "words", [(name,) for name in METHODS] + POLICIES, ids=lambda words: " ".join(words)
)
def test_a_method_trains_from_the_command_line_and_resumes_bit_for_bit(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", "--method.name", *words, *SMALL]
    assert main([*command, "--output", "alone"]) == 0
    assert main([*command, "--engine.checkpoint_steps", "1", "--output", "cut"]) == 0
    checkpoint("cut").unlink()  # as if it had stopped earlier
    status = json.loads(Path("cut/status.json").read_text())
    Path("cut/status.json").write_text(json.dumps({**status, "state": "running"}))
    again = [*command, "--engine.checkpoint_steps", "1", "--output", "cut", "--resume"]
    assert main(again) == 0
    assert len(read_run(Path("cut")).environment["starts"]) == 2
    assert same(final_state("cut"), final_state("alone"))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "gsam", "theta": 0.5}, "method.theta=0.5 does not apply to method gsam"),
        ({"name": "msam", "alpha": 0.5}, "method.alpha=0.5 does not apply to method msam"),
        ({"name": "base", "every": 2}, "method.every=2 does not apply to method base"),
        ({"name": "stale-sam", "ascent_fraction": 0.5}, "method.ascent_fraction=0.5 does not"),
        (
            {"name": "sam", "every": 2, "start": 0.5},
            "method.every=2 and method.start=0.5 exclude each other: give one of them",
        ),
        ({"name": "looksam", "probability": 0.5}, "method.every=5 and method.probability=0.5"),
    ],
)
def test_what_does_not_apply_is_refused_in_one_line(
    method: dict[str, object], message: str
) -> None:
    with pytest.raises(LabError) as caught:
        resolve(RunConfig(method=MethodConfig(**method)))  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_base_without_momentum_is_refused_where_the_perturbation_goes_along_it() -> None:
    config = RunConfig(method=MethodConfig(name="msam"), base=BaseConfig(momentum=0.0))
    with pytest.raises(LabError, match=r"method msam needs base\.momentum above 0, got 0"):
        resolve(config)
    resolve(dataclasses.replace(config, base=BaseConfig(name="adamw", momentum=0.0)))


def test_a_late_start_is_a_step_or_a_share_of_training() -> None:
    def due(start: float) -> Policy:
        return policy(MethodConfig(name="sam", start=start), steps=200, seed=0)

    assert due(0.75) == From(150)
    assert due(30) == From(30)
    assert policy(MethodConfig(name="sam", probability=0.3), steps=9, seed=4) == Randomly(0.3, 4)
    assert policy(
        resolve(RunConfig(method=MethodConfig(name="looksam"))).method, steps=9, seed=0
    ) == Every(5)
