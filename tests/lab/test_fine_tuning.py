"""Fine-tuning a pretrained network: cached features, frozen statistics, folders of photographs."""

import dataclasses
import json
from importlib import metadata
from pathlib import Path

import pytest
import torch
from lab_runs import same, tiny_config

from friendly_sam.lab.config.identity import identity
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import DataConfig, ModelConfig, RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.models.efficientnet_lite import PACKAGE
from friendly_sam.lab.training.streams import load_data
from friendly_sam.lab.training.trainer import train

try:
    metadata.version(PACKAGE)
except metadata.PackageNotFoundError:
    pytest.skip(f"{PACKAGE} is not installed", allow_module_level=True)


def fine_tuning(output, cache=None, *, data=None, engine=None, **model):
    """One epoch on 20 digits of 32x32: two steps, the second on 4 images."""
    sizes = {"train_size": 20, "validation_size": 10, "test_size": 10, "batch_size": 16}
    config = tiny_config(
        output,
        data={**sizes, "image_size": 32, "flip": True, **(data or {})},
        method={"name": "fsam", "rho": 0.01},
        base={"name": "adamw", "lr": 1e-3},
        engine={"channels_last": True, **(engine or {})},
        epochs=2,
    )
    chosen = {"trained_blocks": 2, "cache": None if cache is None else str(cache), **model}
    return dataclasses.replace(config, model=ModelConfig(name="efficientnet_lite0", **chosen))


def results(config):
    """What a run leaves: metrics without times, weights, optimizer."""
    folder = train(config)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    state = torch.load(folder / "checkpoints" / "last.pt", weights_only=True)
    metrics = [{k: v for k, v in line.items() if k != "seconds"} for line in lines]
    return metrics, state["model"], state["optimizer"]


@pytest.mark.parametrize("batch_norm", ["frozen", "training"])
def test_a_run_with_cached_features_is_the_run_without_bit_for_bit(tmp_path, batch_norm):
    plain = results(fine_tuning(tmp_path / "plain", batch_norm=batch_norm))
    cache = tmp_path / "cache"
    fresh = results(fine_tuning(tmp_path / "fresh", cache, batch_norm=batch_norm))
    assert same(fresh, plain)
    stored = sorted(path for path in cache.rglob("*") if path.is_file())
    assert len(stored) == 2 * 20 + 10 + 10
    damaged = stored[3].read_bytes()
    stored[3].write_bytes(damaged[:-1] + bytes([damaged[-1] ^ 1]))
    stored[5].write_bytes(b"")
    assert same(results(fine_tuning(tmp_path / "again", cache, batch_norm=batch_norm)), plain)
    assert stored[3].read_bytes() == damaged


def test_features_in_the_cache_are_used(tmp_path):
    cache = tmp_path / "cache"
    train(fine_tuning(tmp_path / "first", cache))
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    train(fine_tuning(tmp_path / "second", cache))
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_features_of_other_blocks_or_layouts_are_kept_apart(tmp_path):
    cache = tmp_path / "cache"
    for number, changes in enumerate(
        ({}, {"trained_blocks": 1}, {"engine": {"channels_last": False}})
    ):
        train(fine_tuning(tmp_path / str(number), cache, **changes))
    assert len(list(cache.iterdir())) == 3


def test_frozen_statistics_are_the_default_and_stay(tmp_path):
    _, weights, _ = results(fine_tuning(tmp_path / "run", trained_blocks=None))
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert "batch_norm: frozen" in text
    first = load_first_weights()
    still = [name for name in weights if "running" in name]
    assert still
    assert all(torch.equal(weights[name], first[name]) for name in still)


def load_first_weights():
    from friendly_sam.lab.models import build

    return build("efficientnet_lite0", classes=10).state_dict()


REFUSED = [
    ({"cache": "c", "trained_blocks": None}, {}, "needs model.trained_blocks, got null"),
    ({"cache": "c", "trained_blocks": 3}, {"crop_padding": 2}, "data.crop_padding must be 0"),
    ({"cache": "c", "trained_blocks": 3}, {"cutout": 4}, "data.cutout must be 0"),
    ({"cache": ""}, {}, "model.cache must name a folder"),
    ({"trained_blocks": -1}, {}, "model.trained_blocks must be at least 0, got -1"),
    ({}, {"smallest_crop": 0.0}, "data.smallest_crop must be above 0 and at most 1, got 0.0"),
]


@pytest.mark.parametrize(("model", "data", "words"), REFUSED)
def test_what_cannot_be_combined_is_refused_in_one_line(model, data, words):
    with pytest.raises(ValueError, match=words):
        RunConfig(model=ModelConfig(**model), data=DataConfig(**data))


@pytest.mark.parametrize(
    ("name", "model", "words"),
    [
        ("mlp", {"trained_blocks": 1}, "does not apply to mlp"),
        ("mlp", {"batch_norm": "frozen"}, "mlp has no BatchNorm"),
        ("efficientnet_lite0", {"trained_blocks": 16, "cache": "c"}, "freezes no block"),
        ("efficientnet_lite0", {"trained_blocks": 17}, "between 0 and 16"),
    ],
)
def test_what_a_network_cannot_do_is_refused_in_one_line(tmp_path, monkeypatch, name, model, words):
    monkeypatch.chdir(tmp_path)
    config = tiny_config(tmp_path / "run")
    with pytest.raises((LabError, ValueError), match=words):
        train(dataclasses.replace(config, model=ModelConfig(name=name, **model)))


def test_the_cache_leaves_the_name_of_a_run_as_it_is(tmp_path):
    assert identity(fine_tuning(tmp_path)) == identity(fine_tuning(tmp_path, tmp_path / "cache"))


def test_pixels_are_normalised_as_the_pretrained_network_expects(tmp_path):
    data = load_data(resolve(fine_tuning(tmp_path)))
    assert (data.mean, data.std) == ((127 / 255,), (128 / 255,))


def test_a_folder_is_named_after_itself(tmp_path):
    config = resolve(RunConfig(data=DataConfig(root=str(tmp_path / "my photos"))))
    assert config.data.name == "my photos"
    assert Path(str(config.output)).name.startswith("my-photos-mlp")
