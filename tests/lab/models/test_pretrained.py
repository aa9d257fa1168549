import json
import sys
from pathlib import Path

import pytest
import torch

from friendly_sam.lab.models import build

transformers = pytest.importorskip("transformers")


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=16,
        patch_size=8,
    )
    config.save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


@pytest.fixture
def resnet(tmp_path: Path) -> Path:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    config.save_pretrained(tmp_path / "resnet")
    return tmp_path / "resnet"


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_a_folder_with_only_a_config_gives_a_network_with_random_weights(
    kind: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    model = build(f"hf:{folder}", classes=5, image_size=16)
    assert model.training
    logits = model(torch.randn(2, 3, 16, 16))
    assert logits.shape == (2, 5)
    logits.sum().backward()
    assert sum(p.grad is not None and bool(p.grad.any()) for p in model.parameters()) > 4


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_saved_weights_are_loaded_and_only_the_head_is_new(
    kind: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    first = build(f"hf:{folder}", classes=5, image_size=16)
    first.model.save_pretrained(folder)  # type: ignore[union-attr, operator]
    second = build(f"hf:{folder}", classes=3, image_size=16)
    before, after = first.state_dict(), second.state_dict()
    assert before.keys() == after.keys()
    changed = {key for key in before if before[key].shape != after[key].shape}
    assert changed
    assert all("classifier" in key for key in changed)
    assert all(torch.equal(before[key], after[key]) for key in before.keys() - changed)
    assert second(torch.randn(2, 3, 16, 16)).shape == (2, 3)


def test_half_precision_weights_are_loaded_in_float32(resnet: Path) -> None:
    build(f"hf:{resnet}", classes=5).model.bfloat16().save_pretrained(resnet)  # type: ignore[union-attr, operator]
    assert {p.dtype for p in build(f"hf:{resnet}", classes=5).parameters()} == {torch.float32}


def test_images_of_another_size_interpolate_the_positions(vit: Path) -> None:
    model = build(f"hf:{vit}", classes=5, image_size=32)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 5)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such folder"):
        build(f"hf:{tmp_path / 'nowhere'}", classes=5)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder has no config\.json"):
        build(f"hf:{tmp_path}", classes=5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{ not json", "cannot load hf:"),
        (json.dumps({"model_type": "no-such-model"}), "cannot load hf:"),
        (json.dumps({"model_type": "bert"}), "cannot load hf:"),
        (json.dumps({"model_type": "vit", "num_channels": 1}), "takes 1 channels"),
    ],
)
def test_a_config_that_is_no_image_classifier_gets_one_line(
    tmp_path: Path, config: str, message: str
) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match=message) as error:
        build(f"hf:{tmp_path}", classes=5)
    assert "\n" not in str(error.value)


def test_damaged_weights_get_one_line(resnet: Path) -> None:
    (resnet / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="cannot load hf:") as error:
        build(f"hf:{resnet}", classes=5)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "package"), [("hf:x/y", "transformers"), ("timm:x", "timm")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match="pip install") as error:
        build(name, classes=5)
    assert "\n" not in str(error.value)


def test_the_libraries_logging_is_left_as_it_was(vit: Path) -> None:
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    build(f"hf:{vit}", classes=5)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
