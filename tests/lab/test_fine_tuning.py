"""Fine-tuning a pretrained network: cached features, frozen statistics, folders of photographs."""

import dataclasses
import json
from importlib import metadata
from pathlib import Path

import numpy
import pytest
import torch
from lab_runs import checkpoint, same, tiny_config
from PIL import Image

from friendly_sam.lab import load
from friendly_sam.lab.cli import main
from friendly_sam.lab.cli.run_settings import settings
from friendly_sam.lab.config.identity import identity
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import DataConfig, MethodConfig, ModelConfig, RunConfig
from friendly_sam.lab.config.yaml import from_yaml
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
    state = torch.load(checkpoint(folder), weights_only=True)
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


class Gone:
    """A listener that cuts a run off after its first epoch."""

    def step(self, epoch, batch, batches):
        pass

    def epoch(self, metrics):
        raise BrokenPipeError(32, "Broken pipe")


def test_a_resumed_run_writes_features_only_where_the_command_line_says(tmp_path, capsys):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    with pytest.raises(BrokenPipeError):
        train(fine_tuning(run), listener=Gone())
    text = (run / "config.yaml").read_text()
    assert "  cache: null\n" in text
    (run / "config.yaml").write_text(text.replace("cache: null", f"cache: {elsewhere}"))
    named = settings(["--output", str(run), "--model.cache", "mine"], resume=True)
    assert (named.model.cache, capsys.readouterr().out) == ("mine", "")
    assert main(["train", "--resume", "--output", str(run)]) == 0
    note = f"the cache of this run is not used unless it is named: --model.cache {elsewhere}\n"
    assert capsys.readouterr().out.startswith(note)
    assert not elsewhere.exists()


def test_a_folder_of_features_that_is_a_link_is_refused(tmp_path):
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    train(fine_tuning(tmp_path / "first", cache))
    (folder,) = cache.iterdir()
    folder.rename(tmp_path / "kept")
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(LabError, match="is a link, which is not followed"):
        train(fine_tuning(tmp_path / "second", cache))
    assert not list(elsewhere.iterdir())


def test_features_of_other_blocks_or_layouts_are_kept_apart(tmp_path):
    cache = tmp_path / "cache"
    for number, changes in enumerate(
        (
            {},
            {"trained_blocks": 1},
            {"engine": {"channels_last": False}},
            {"engine": {"precision": "bf16"}},
        )
    ):
        train(fine_tuning(tmp_path / str(number), cache, **changes))
    assert len(list(cache.iterdir())) == 4


def test_features_of_other_weights_are_kept_apart(tmp_path):
    cache = tmp_path / "cache"
    other = train(fine_tuning(tmp_path / "all layers", trained_blocks=None))
    train(fine_tuning(tmp_path / "ImageNet", cache))
    train(fine_tuning(tmp_path / "others", cache, weights=str(other)))
    assert len(list(cache.iterdir())) == 2


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


def photographs(root, classes=("cat", "dog", "owl"), each=5):
    """A folder of JPEG files for each class, which differ in colour; another grows to the right."""
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(each):
            pixels = numpy.zeros((36, 40 + number, 3), dtype=numpy.uint8)
            pixels[..., label] = 150 + 20 * number
            pixels[..., (label + 1) % 3] = 4 * numpy.arange(40 + number)
            Image.fromarray(pixels).save(root / name / f"{number}.jpg")
    return root


def test_photographs_are_seen_alike_with_a_cache_and_without(tmp_path):
    """Larger images than 64 pixels are else cropped at random."""
    data = {"name": "mine", "root": str(photographs(tmp_path / "mine")), "image_size": 72}
    sizes = {"train_size": 6, "validation_size": 3, "test_size": 3, "batch_size": 6}
    runs = [
        results(fine_tuning(tmp_path / f"run {cache}", cache, data={**data, **sizes}))
        for cache in (None, tmp_path / "cache")
    ]
    assert same(*runs)


def test_whether_images_are_cropped_at_random_makes_another_run(tmp_path):
    names = {
        identity(fine_tuning(tmp_path, data={"in_memory": value})) for value in (None, True, False)
    }
    assert len(names) == 3


def test_the_command_of_the_tutorial_trains_on_a_folder_and_the_result_is_loaded(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    photographs(tmp_path / "my photos")
    command = ["train", "--data.root", "my photos", "--model.name", "efficientnet_lite0"]
    quick = ["--data.image_size", "32", "--data.batch_size", "4", "--output", "runs/mine"]
    assert main([*command, *quick, "--engine.threads", "1"]) == 0
    assert "finished: runs/mine" in capsys.readouterr().out
    config = from_yaml(tmp_path / "runs/mine/config.yaml")
    assert (config.base.name, config.method.name, config.method.rho) == ("adamw", "fsam", 0.01)
    assert (config.model.batch_norm, config.data.name) == ("frozen", "my photos")
    assert any((tmp_path / "runs/features").iterdir())

    classifier = load("runs/mine")
    assert classifier.classes == ("cat", "dog", "owl")
    found = classifier("my photos/cat/0.jpg")
    assert {name for name, _ in found} == {"cat", "dog", "owl"}
    assert sum(share for _, share in found) == pytest.approx(1)


def test_a_classifier_gives_the_logits_of_the_run(tmp_path):
    folder = train(fine_tuning(tmp_path / "run", data={"flip": False}))
    classifier = load(folder)
    data = load_data(resolve(fine_tuning(tmp_path)))
    pixels = data.test.images
    pictures = [Image.fromarray(image[0].numpy()) for image in pixels]
    right = [
        classifier(picture)[0][0] == data.classes[label]
        for picture, label in zip(pictures, data.test.labels.tolist())
    ]
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    best = max(
        (json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()),
        key=lambda found: found["validation_accuracy"],
    )
    assert line["epoch"] == 2
    assert 100 * sum(right) / len(right) == pytest.approx(best["test_accuracy"])


def test_a_classifier_needs_no_package_of_pretrained_weights(tmp_path, monkeypatch):
    folder = train(fine_tuning(tmp_path / "run"))
    monkeypatch.setattr(metadata, "files", lambda name: pytest.fail("the package was read"))
    assert len(load(folder)(Image.new("L", (8, 8)), top=10)) == 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": "cat"}, "classes holds"),
        ({"std": [0.0]}, "do not fit"),
        ({"mean": [0.5, 0.5]}, "do not fit"),
        ({"image_size": 10**9}, "do not fit"),
        ({"channels": 2}, "do not fit"),
    ],
)
def test_damaged_inputs_are_refused_in_one_line(tmp_path, change, words):
    folder = train(tiny_config(tmp_path / "run"))
    path = folder / "inputs.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(LabError, match=words):
        load(folder)


def test_what_is_no_run_cannot_be_loaded(tmp_path):
    with pytest.raises(LabError, match="holds no run"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no picture 'nowhere.jpg'"):
        load(train(tiny_config(tmp_path / "run")))("nowhere.jpg")


@pytest.mark.parametrize(
    ("model", "rho"),
    [
        ({"name": "efficientnet_lite0"}, 0.01),
        ({"name": "efficientnet_lite0", "batch_norm": "training"}, 0.05),
        ({"name": "resnet8"}, 0.05),
    ],
)
def test_the_default_radius_is_a_fifth_with_frozen_statistics(model, rho):
    config = resolve(RunConfig(model=ModelConfig(**model), method=MethodConfig(name="sam")))
    assert config.method.rho == pytest.approx(rho)
    assert resolve(config) == config
