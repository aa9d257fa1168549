import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from friendly_sam.lab.models import MODELS, build
from friendly_sam.lab.models.vgg import VGG

PUBLISHED = {
    "vgg16_bn": (15_253_578, 512),
    "resnet18": (11_173_962, 512),
    "wrn28_10": (36_479_194, 640),
    "pyramidnet110": (18_323_787, 286 * 4),
}
"""Parameters with 10 classes, and features that enter the head."""

SMALL = ("resnet8", "resnet8s2", "resnet8w32", "vgg8_bn", "wrn10_2")


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def on_meta(name: str, **options: int) -> nn.Module:
    with torch.device("meta"):
        return build(name, **options)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_networks_have_their_published_number_of_parameters(name: str) -> None:
    ten, features = PUBLISHED[name]
    assert parameters(on_meta(name, classes=10)) == ten
    assert parameters(on_meta(name, classes=100)) == ten + 90 * (features + 1)


def test_resnet50_has_its_imagenet_number_of_parameters() -> None:
    assert parameters(on_meta("resnet50", classes=1000, image_size=224)) == 25_557_032


def test_the_mlp_is_64_256_256_10() -> None:
    model = build("mlp", classes=10, in_channels=1, image_size=8)
    shapes = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Linear)]
    assert shapes == [(256, 64), (256, 256), (10, 256)]
    assert not any(isinstance(m, nn.BatchNorm2d) for m in model.modules())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("size", "channels"), [(32, 3), (16, 3), (36, 1), (8, 1)])
def test_every_network_gives_logits_or_says_that_the_images_are_too_small(
    name: str, size: int, channels: int
) -> None:
    smallest = {"vgg16_bn": 16, "vgg8_bn": 16, "resnet50": 32}.get(name, 1)
    if size < smallest:
        with pytest.raises(ValueError, match=f"image_size must be at least {smallest}, got {size}"):
            on_meta(name, classes=7, in_channels=channels, image_size=size)
        return
    model = on_meta(name, classes=7, in_channels=channels, image_size=size)
    images = torch.empty(2, channels, size, size, device="meta")
    assert model(images).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "channels", "size"),
    [*((name, 3, 16) for name in SMALL), ("mlp", 1, 8), ("cnn", 1, 8), ("resnet50", 3, 32)],
)
def test_every_parameter_gets_a_finite_gradient(name: str, channels: int, size: int) -> None:
    torch.manual_seed(0)
    model = build(name, classes=5, in_channels=channels, image_size=size)
    logits = model(torch.randn(4, channels, size, size))
    F.cross_entropy(logits, torch.arange(4)).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


@pytest.mark.parametrize("name", ["resnet8", "wrn10_2"])
def test_small_networks_fit_a_handful_of_images(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, classes=4, image_size=8)
    images, labels = torch.randn(16, 3, 8, 8), torch.arange(16) % 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


@pytest.mark.parametrize("name", ["resnet8w64", "vgg8_bn", "wrn10_2", "cnn"])
def test_convolutions_start_from_hes_distribution(name: str) -> None:
    torch.manual_seed(0)
    for module in build(name, classes=10).modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 4000:
            fan_out = module.out_channels * math.prod(module.kernel_size)
            torch.testing.assert_close(
                module.weight.std(), torch.tensor((2 / fan_out) ** 0.5), rtol=0.05, atol=0
            )


def test_a_forward_pass_takes_channels_last() -> None:
    torch.manual_seed(0)
    model = build("resnet8", classes=10).eval()
    images = torch.randn(2, 3, 16, 16)
    expected = model(images)
    last = model.to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, expected)


def test_the_same_seed_builds_the_same_network() -> None:
    torch.manual_seed(3)
    first = build("resnet8", classes=10).state_dict()
    torch.manual_seed(3)
    second = build("resnet8", classes=10).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_descriptions_are_single_lines() -> None:
    for info in MODELS.values():
        assert info.description
        assert "\n" not in info.description


def test_an_unknown_name_is_refused_with_the_names_and_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"unknown model 'resnet-18' \(did you mean resnet18\?\)"
    ) as e:
        build("resnet-18", classes=10)
    assert all(name in str(e.value) for name in MODELS)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("name", ["", "hf:", "timm:"])
def test_an_empty_name_is_unknown(name: str) -> None:
    with pytest.raises(ValueError, match="unknown model"):
        build(name, classes=10)


@pytest.mark.parametrize("option", ["classes", "in_channels", "image_size"])
def test_sizes_below_one_are_refused(option: str) -> None:
    options = {"classes": 10, option: 0}
    with pytest.raises(ValueError, match=f"{option} must be at least 1, got 0"):
        build("resnet8", **options)


def test_vgg_at_32_halves_five_times() -> None:
    model = VGG(((4,), (4,), (4,), (4,), (4,)), classes=2)
    assert model.features(torch.zeros(1, 3, 32, 32)).shape == (1, 4, 1, 1)
