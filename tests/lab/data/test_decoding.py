import pytest
import torch

from friendly_sam.lab.data.decoding import random_resized_crop
from friendly_sam.lab.data.pixels import fit_square, from_tensor, to_tensor
from friendly_sam.lab.data.randomness import generator_for


def ramp(width: int, height: int) -> torch.Tensor:
    """Red grows to the right, green downwards."""
    x = torch.arange(width).expand(height, width)
    y = torch.arange(height).unsqueeze(1).expand(height, width)
    return torch.stack([x, y, torch.zeros_like(x)]).to(torch.uint8)


def test_pixels_go_to_pillow_and_back() -> None:
    for pixels in (ramp(20, 10), ramp(20, 10)[:1]):
        assert torch.equal(to_tensor(from_tensor(pixels)), pixels)


def test_the_centre_is_what_fit_square_keeps() -> None:
    kept = to_tensor(fit_square(from_tensor(ramp(100, 60)), 60))
    assert kept.shape == (3, 60, 60)
    assert torch.equal(kept, ramp(100, 60)[:, :, 20:80])
    smaller = to_tensor(fit_square(from_tensor(ramp(100, 60)), 20, resized=60))
    assert torch.equal(smaller, ramp(100, 60)[:, 20:40, 40:60])


@pytest.mark.parametrize("size", [(7, 100), (100, 7), (1, 1), (33, 32)])
def test_fit_square_takes_any_shape(size: tuple[int, int]) -> None:
    assert fit_square(from_tensor(ramp(*size)), 32).size == (32, 32)


def test_random_resized_crops_keep_the_asked_share_of_the_area() -> None:
    picture = from_tensor(ramp(200, 200))
    shares = []
    for number in range(300):
        crop = to_tensor(
            random_resized_crop(picture, 32, smallest=0.25, generator=generator_for(number))
        ).double()
        width, height = (crop[c].max() - crop[c].min() for c in (0, 1))
        shares.append((width * height / 200**2).item())
        assert 0.70 < width / height < 1.43
    assert 0.2 < min(shares) < 0.3
    assert 0.85 < max(shares) <= 1
    assert 0.5 < sum(shares) / 300 < 0.6


@pytest.mark.parametrize("size", [(300, 5), (5, 300)])
def test_long_pictures_fall_back_to_the_centre(size: tuple[int, int]) -> None:
    picture = from_tensor(ramp(*(min(side, 250) for side in size)))
    crop = random_resized_crop(picture, 16, smallest=1.0, generator=generator_for(0))
    long = to_tensor(crop)[0 if size[0] > size[1] else 1].double()
    assert long.mean().item() == pytest.approx(124.5, abs=2)
