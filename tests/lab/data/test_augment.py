import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from friendly_sam.lab.data import Augmentation
from friendly_sam.lab.data.augment import Draws
from friendly_sam.lab.data.randomness import generator_for


def slow_move(images: Tensor, draws: Draws, padding: int) -> Tensor:
    """Image by image and pixel by pixel: pad with black, crop, then flip."""
    out = torch.zeros_like(images)
    count, _, height, width = images.shape
    for i in range(count):
        for y in range(height):
            for x in range(width):
                source_y = y + int(draws.down[i]) - padding
                source_x = x + int(draws.right[i]) - padding
                target_x = width - 1 - x if draws.flip[i] else x
                if 0 <= source_y < height and 0 <= source_x < width:
                    out[i, :, y, target_x] = images[i, :, source_y, source_x]
    return out


def slow_blank(images: Tensor, draws: Draws, side: int) -> Tensor:
    out = images.clone()
    for i in range(len(images)):
        if draws.cut[i]:
            top, left = int(draws.top[i]), int(draws.left[i])
            out[i, :, max(0, top) : max(0, top + side), max(0, left) : max(0, left + side)] = 0
    return out


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 4),
    channels=st.sampled_from([1, 3]),
    size=st.integers(1, 7),
    padding=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_crop_and_flip_equal_the_slow_reference(
    count: int, channels: int, size: int, padding: int, flip: bool, seed: int
) -> None:
    generator = generator_for("test", seed)
    images = torch.randint(
        1, 256, (count, channels, size, size), generator=generator, dtype=torch.uint8
    )
    augment = Augmentation(flip=flip, crop_padding=padding)
    draws = augment.draw(count, size, generator)
    moved = augment.move(images, draws)
    assert moved.dtype == torch.uint8
    assert torch.equal(moved, slow_move(images, draws, padding))


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 6),
    size=st.integers(1, 9),
    side=st.integers(0, 12),
    probability=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_cutout_equals_the_slow_reference(
    count: int, size: int, side: int, probability: float, seed: int
) -> None:
    generator = generator_for("test", seed)
    images = torch.rand((count, 3, size, size), generator=generator) + 1
    augment = Augmentation(cutout=side, cutout_probability=probability)
    draws = augment.draw(count, size, generator)
    expected = slow_blank(images, draws, side)
    assert torch.equal(augment.blank(images, draws), expected)


def test_each_image_has_numbers_of_its_own_and_all_places_are_reached() -> None:
    augment = Augmentation(flip=True, crop_padding=4, cutout=16)
    draws = augment.draw(4000, 32, generator_for("test"))
    assert set(draws.down.tolist()) == set(draws.right.tolist()) == set(range(9))
    assert set(draws.top.tolist()) == set(draws.left.tolist()) == set(range(-8, 24))
    assert 0.45 < draws.flip.double().mean() < 0.55
    assert 0.45 < draws.cut.double().mean() < 0.55
    assert abs(torch.corrcoef(torch.stack([draws.down, draws.right]).double())[0, 1]) < 0.1


def test_switching_one_augmentation_leaves_the_numbers_of_the_others() -> None:
    full = Augmentation(flip=True, crop_padding=4, cutout=16).draw(50, 32, generator_for(1))
    part = Augmentation(flip=False, crop_padding=4, cutout=0).draw(50, 32, generator_for(1))
    assert torch.equal(full.down, part.down)
    assert torch.equal(full.right, part.right)
    assert not part.flip.any()
    assert not part.cut.any()


def test_no_augmentation_leaves_the_images() -> None:
    images = torch.arange(2 * 3 * 16, dtype=torch.uint8).view(2, 3, 4, 4)
    augment = Augmentation()
    draws = augment.draw(2, 4, generator_for(0))
    assert augment.move(images, draws) is images
    floats = images.float()
    assert torch.equal(augment.blank(floats.clone(), draws), floats)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop_padding": -1}, "crop_padding must be at least 0, got -1"),
        ({"cutout": -2}, "cutout must be at least 0, got -2"),
        ({"cutout_probability": 1.5}, r"cutout_probability must lie in \[0, 1\], got 1.5"),
        ({"smallest_crop": 0.0}, r"smallest_crop must lie in \(0, 1\], got 0.0"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augmentation(**options)  # type: ignore[arg-type]
