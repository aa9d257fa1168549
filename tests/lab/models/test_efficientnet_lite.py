"""The pretrained network: its outputs are the package's, and what is frozen stays as it is."""

import importlib.util
import json
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from friendly_sam.lab.models import MODELS, build
from friendly_sam.lab.models.efficientnet_lite import (
    BLOCKS,
    PACKAGE,
    EfficientNetLite0,
    efficientnet_lite0,
)
from friendly_sam.lab.models.freezing import FrozenBatchNorm2d, freeze_batch_norm

try:
    metadata.version(PACKAGE)
except metadata.PackageNotFoundError:
    pytest.skip(f"{PACKAGE} is not installed", allow_module_level=True)

# Every 20th logit of efficientnet_lite_pytorch 0.1.0, which the weights were made for.
THEIRS = json.loads((Path(__file__).parent / "efficientnet_lite0_logits.json").read_text())


def pattern(side):
    y, x, c = torch.meshgrid(torch.arange(side), torch.arange(side), torch.arange(3), indexing="ij")
    return ((7 * x + 3 * y * (c + 1) + x * y // (5 + c)) % 256).permute(2, 0, 1).unsqueeze(0)


def normalised(pixels):
    mean, std = MODELS["efficientnet_lite0"].pixels
    return (pixels.float() / 255 - mean) / std


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("side", [224, 128])
def test_logits_are_those_of_the_package(side, layout):
    model = efficientnet_lite0(classes=1000, imagenet_head=True).eval().to(memory_format=layout)
    with torch.no_grad():
        logits = model(normalised(pattern(side)))[0, ::20]
    torch.testing.assert_close(logits, torch.tensor(THEIRS[str(side)]), rtol=0, atol=1e-5)


ROOT = Path(__file__).resolve().parents[3]
PETS = ROOT.parent / "shared" / "data" / "oxford-pets"


@pytest.mark.skipif(not PETS.is_dir(), reason="the photographs of Oxford Pets are not here")
def test_breeds_are_recognised_among_the_classes_of_imagenet():
    spec = importlib.util.spec_from_file_location(
        "imagenet_accuracy", ROOT / "benchmarks" / "imagenet_accuracy.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    data = script.photographs(PETS, image_size=96, train_size=1, test_size=64)
    assert len(data.classes) == 24
    assert script.right(data, ("test",)).float().mean() > 0.4  # chance: 0.001


def test_the_head_is_new_and_all_else_is_pretrained():
    torch.manual_seed(0)
    one = build("efficientnet_lite0", classes=37).state_dict()
    two = build("efficientnet_lite0", classes=37).state_dict()
    assert [name for name in one if not torch.equal(one[name], two[name])] == [
        f"{1 + BLOCKS}.classifier.weight",
        f"{1 + BLOCKS}.classifier.bias",
    ]


def test_a_grey_image_is_three_equal_channels():
    model = efficientnet_lite0(classes=5).eval()
    grey = torch.rand(2, 1, 32, 32)
    assert torch.equal(model(grey), model(grey.repeat(1, 3, 1, 1)))


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    with pytest.raises(ImportError, match=r"needs its ImageNet weights: .*pretrained") as caught:
        build("efficientnet_lite0", classes=10)
    assert "\n" not in str(caught.value)


def trained_a_little(model):
    """Take three steps in training mode."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model.train()
    for _ in range(3):
        F.cross_entropy(model(torch.rand(4, 3, 32, 32)), torch.arange(4)).backward()
        optimizer.step()


def changed(model, before):
    return {
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    }


def copied(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("blocks", [0, 5, 16])
def test_only_the_last_blocks_and_the_head_change(blocks):
    model = efficientnet_lite0(classes=4)
    model.train_only(blocks)
    before = copied(model)
    trained_a_little(model)
    layers = {int(name.split(".")[0]) for name in changed(model, before)}
    assert layers == set(range(1 + BLOCKS - blocks if blocks < BLOCKS else 0, 2 + BLOCKS))


def test_frozen_statistics_stay_and_their_weights_are_trained():
    model = efficientnet_lite0(classes=4)
    assert freeze_batch_norm(model) == 49
    before = copied(model)
    trained_a_little(model.eval().train())
    moved = changed(model, before)
    assert not [name for name in moved if "running" in name or "tracked" in name]
    assert len([name for name in moved if name.endswith("norm.weight")]) == 49
    with torch.no_grad():
        image = torch.rand(1, 3, 32, 32)
        model[-1].dropout.p = 0.0
        assert torch.equal(model.train()(image), model.eval()(image))


def test_the_statistics_of_frozen_blocks_stay_in_training_mode_too():
    model = efficientnet_lite0(classes=4)
    model.train_only(2)
    norms = [m for m in model.lower.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)
    assert all(m.training for m in model.upper.modules())
    assert not any(isinstance(m, FrozenBatchNorm2d) for m in model.modules())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_an_image_has_the_same_features_in_every_batch(layout):
    model = efficientnet_lite0(classes=4).to(memory_format=layout)
    model.train_only(5)
    images = torch.rand(40, 3, 64, 64).contiguous(memory_format=layout)
    whole = model.features(images)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for size in (1, 3, 8, 32):
        batches = [images[rows].contiguous(memory_format=layout) for rows in order.split(size)]
        found = torch.cat([model.features(batch) for batch in batches])
        assert torch.equal(found, whole[order])


def test_more_blocks_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"trained_blocks must be between 0 and 16 .*got 17"):
        EfficientNetLite0(classes=3).train_only(17)
