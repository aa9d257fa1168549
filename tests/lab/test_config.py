from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from friendly_sam.lab.config import schema as module
from friendly_sam.lab.config.identity import difference
from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.presets import PRESETS, preset
from friendly_sam.lab.config.resolve import label, resolve
from friendly_sam.lab.config.schema import MethodConfig, RunConfig
from friendly_sam.lab.config.yaml import (
    config_parser,
    flatten,
    from_arguments,
    from_dict,
    from_yaml,
    to_yaml,
)
from friendly_sam.lab.errors import LabError

BAD = [
    ("DataConfig", {"label_noise": 1.5}, "data.label_noise must be between 0 and 1, got 1.5"),
    ("DataConfig", {"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
    ("DataConfig", {"name": ""}, "data.name must name a data set"),
    ("MethodConfig", {"rho": -0.1}, "method.rho must be at least 0, got -0.1"),
    ("MethodConfig", {"rho": float("inf")}, "method.rho must be between 0 and 1e+09, got inf"),
    ("MethodConfig", {"rho": float("nan")}, "method.rho must be between 0 and 1e+09, got nan"),
    ("MethodConfig", {"decay": 1.0}, "method.decay must be at least 0 and below 1, got 1.0"),
    ("MethodConfig", {"ascent_fraction": 0.0}, "method.ascent_fraction must be above 0"),
    ("BaseConfig", {"lr": 0.0}, "base.lr must be greater than 0, got 0.0"),
    ("BaseConfig", {"betas": (0.9, 1.0)}, "base.betas must be at least 0 and below 1"),
    ("BaseConfig", {"nesterov": True, "momentum": 0.0}, "base.nesterov needs base.momentum"),
    ("ScheduleConfig", {"milestones": (0.5, 2.0)}, "schedule.milestones must be between 0 and 1"),
    ("EngineConfig", {"clip_norm": 0.0}, "engine.clip_norm must be greater than 0, got 0.0"),
    ("RunConfig", {"epochs": 0}, "epochs must be at least 1, got 0"),
    (
        "RunConfig",
        {"method": MethodConfig(ascent_batches=2, ascent_fraction=0.5)},
        "exclude each other, got 2 and 0.5",
    ),
    ("RunConfig", {"schedule": module.ScheduleConfig(warmup_epochs=30)}, "must be below epochs"),
    ("RunConfig", {"engine": module.EngineConfig(micro_batches=200)}, "at most data.batch_size"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), BAD)
def test_a_bad_value_is_refused_by_name_and_bound(
    kind: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(module, kind)(**settings)


def test_every_field_is_explained_in_the_help() -> None:
    text = config_parser().format_help()
    for name in flatten(RunConfig()):
        assert f"--{name} " in text
    assert "Radius of the perturbation" in text
    assert text.count("(type:") == len(flatten(RunConfig()))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_yaml_and_resolves_once(name: str, tmp_path: Path) -> None:
    config = resolve(preset(name))
    assert resolve(config) == config
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert from_yaml(path) == config


def test_the_papers_numbers_are_in_the_presets() -> None:
    # Section 6.1, 6.2 and appendix A5.
    sgd, fsam = preset("cifar10-resnet18-sgd"), resolve(preset("cifar100-wrn28_10-fsam"))
    assert (sgd.base.lr, sgd.base.momentum, sgd.base.weight_decay, sgd.epochs) == (
        0.05, 0.9, 5e-4, 200,
    )  # fmt: skip
    assert (fsam.method.rho, fsam.method.decay, fsam.method.sigma) == (0.2, 0.9, 1.0)
    assert fsam.base.weight_decay == 1e-3
    assert (fsam.data.batch_size, fsam.data.cutout, fsam.data.crop_padding) == (128, 16, 4)
    assert preset("cifar10-vgg16_bn-fsam").method.decay == 0.6
    assert preset("cifar10-pyramidnet110-sam").epochs == 300
    assert preset("cifar10-resnet18-asam").method.rho == 2.0
    assert preset("cifar100-resnet18-asam").method.rho == 4.0
    assert preset("cifar100-resnet18-fishersam").method.rho == 0.1
    imagenet = preset("imagenet-resnet50-fsam")
    assert (imagenet.method.rho, imagenet.method.decay, imagenet.epochs) == (0.075, 0.95, 90)
    assert imagenet.base.weight_decay == 1e-4
    transfer = preset("flowers-deit_small-sam")
    assert (transfer.base.name, transfer.base.lr, transfer.base.weight_decay) == (
        "adamw", 1e-4, 1e-5,
    )  # fmt: skip
    assert (transfer.method.rho, transfer.epochs) == (0.075, 10)


def test_a_method_gets_its_own_defaults() -> None:
    for name, info in METHODS.items():
        method = resolve(RunConfig(method=MethodConfig(name=name))).method
        for key, setting in info.settings.items():
            assert getattr(method, key) == setting.default
            assert setting.source


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "base", "rho": 0.1}, "method.rho=0.1 does not apply to method base"),
        ({"name": "sam", "decay": 0.9}, "method.decay=0.9 does not apply to method sam"),
        ({"name": "fsam", "only": "weight"}, "method.only=weight does not apply"),
        ({"name": "sam-full", "ascent_batches": 2}, "does not use the step's batch"),
    ],
)
def test_a_setting_that_does_not_apply_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=message):
        resolve(RunConfig(method=MethodConfig(**settings)))


def test_preset_then_file_then_command_line(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text("base: {lr: 1e-2, momentum: 0.5}\nepochs: 7\n")
    parser = config_parser(preset("digits-mlp-fsam"))
    config = from_arguments(["--config", str(path), "--epochs", "9"], parser)
    assert (config.epochs, config.base.lr, config.base.momentum) == (9, 0.01, 0.5)
    assert config.data.label_noise == 0.6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "many"], "epochs must be a whole number, got many"),
        (
            ["--method.rh", "1"],
            "unrecognized arguments: --method.rh 1 (did you mean --method.rho?)",
        ),
        (
            ["--method.name", "sm"],
            "method.name: unknown method 'sm' (did you mean sam?): choose from base, sam, asam",
        ),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--method.rho", "-1"], "method.rho must be at least 0, got -1.0"),
        (["--seed", "9" * 400], "seed must be between 0 and 9223372036854775807, got an integer"),
        (["--seed", "9" * 5000], "--seed must have fewer digits, got an integer of 5000 digits"),
        (["--base.lr=" + "9" * 400], "--base.lr must have fewer digits, got an integer of 400"),
        (["--seed", "1e30"], "seed must be a whole number, got 1e+30"),
        (["--data.classes", "&a [*a]"], "data.classes must be a list of whole numbers or null"),
        (["--engine.threads", "100000"], "engine.threads must be between 1 and 1024, got 100000"),
        (["--data", "os.path"], "unrecognized arguments: --data"),
        (["--config", "/dev/zero"], "it is a device, not a regular file"),
        (["--output", "a\x1b[2Jb"], r"output must not have control characters, got 'a\x1b[2Jb'"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(LabError) as caught:
        from_arguments(arguments, config_parser())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methud: {rho: 1}", "there is no setting 'methud' (did you mean method?)"),
        ("method: {rho: [1]}", "method.rho"),
        ("method: {name: null}", "method.name must not be null (default: "),
        ("data: {batch_size: null}", "data.batch_size must not be null (default: "),
        ("method: {roh: 1}", "there is no setting method.'roh' (did you mean rho?)"),
        ("config: /etc/passwd", "there is no setting 'config'"),
        ("config: {epochs: 1}", "there is no setting 'config'"),
        ("data: /etc/passwd", "data must hold settings as `key: value`, got a str"),
        ("data: os.path", "data must hold settings as `key: value`, got a str"),
        ("data: null", "data must hold settings as `key: value`, got null"),
        ("data: {class_path: antigravity.X}", "there is no setting data.'class_path'"),
        ("data.name: x", "there is no setting 'data.name'"),
        ("1: 2", "there is no setting 1"),
        ("a: &x [*x]", "aliases are not read (*x)"),
        ("a: &x [1]\nb: *x", "aliases are not read (*x)"),
        ("a: " + "[" * 50_000, "nested more than 8 levels deep"),
        ("data: {name: " + "x" * 5000 + "}", "data.name must have at most 4096 characters"),
        ("data: {classes: [[1]]}", "data.classes must be a plain value, got a list"),
        ("seed: 2001-01-01", "seed must be a plain value, got a date"),
        ("seed: !!binary aGk=", "seed must be a plain value, got a bytes"),
        ("seed: !!int ''", "is not valid YAML"),
        ("#" * 200_000, "200,000 bytes, and at most 100,000 are read"),
        ("root:x:0:0:root:/root:/bin/bash", "must hold settings as `key: value`, got str"),
        ('data: {name: "a\\e[31mb"}', "data.name must not have control characters"),
        ("seed: " + "9" * 400, "got an integer of about 401 digits"),
        ("seed: " + "9" * 5000, "is not valid YAML"),
        ("base: {lr: " + "9" * 400 + "}", "base.lr must be at most"),
        ("data: {classes: [" + "9" * 400 + "]}", "got an integer of about 401 digits"),
        ("method: {sigma: " + "9" * 400 + "}", "method.sigma"),
        ("seed: 1e30", "seed must be a whole number, got 1e+30"),
        ("engine: {threads: 100000}", "engine.threads must be between 1 and 1024, got 100000"),
        (": [", "is not valid YAML"),
        ("- 1\n- 2", "must hold settings"),
        ("!!python/object/apply:os.system ['echo']", "is not valid YAML"),
    ],
)
def test_a_bad_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(LabError) as caught:
        from_yaml(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a: [secret", "secret: secret: secret", "secret\n\t: '"])
def test_a_file_that_is_no_yaml_is_not_quoted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(LabError, match=r"bad\.yaml is not valid YAML, line \d") as caught:
        from_yaml(path)
    assert "secret" not in str(caught.value)


def test_configs_are_read_as_they_were_written() -> None:
    config = RunConfig(method=MethodConfig(name="fsam", sigma="projection"), seed=3)
    assert from_dict(yaml.safe_load(to_yaml(config))) == config


def test_where_a_run_is_computed_makes_no_other_run() -> None:
    config = RunConfig()
    moved = from_arguments(["--output", "x", "--engine.threads", "3"], config_parser(config))
    assert difference(config, moved) is None
    other = from_arguments(["--base.lr", "1"], config_parser(config))
    assert difference(config, other) == "base.lr is 0.05 there and 1.0 here"


def test_labels_are_those_of_the_paper() -> None:
    assert label(preset("digits-mlp-sgd")) == "SGD"
    assert label(preset("cifar10-deit_small-adamw")) == "AdamW"
    assert label(preset("digits-mlp-fsam")) == "F-SAM"


def test_a_config_of_an_older_version_is_read_without_what_was_removed(tmp_path: Path) -> None:
    config = resolve(RunConfig())
    values = yaml.safe_load(to_yaml(config))
    values["engine"]["fused"] = True
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    assert from_yaml(path) == config
