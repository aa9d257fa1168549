import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import encode

from friendly_sam.lab.data import Augmentation, Batch, Batches, ImageData, Split, load

AUGMENT = Augmentation(flip=True, crop_padding=1, cutout=3)


@pytest.fixture(scope="module")
def digits() -> ImageData:
    return load("digits", train_size=203, test_size=57)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> ImageData:
    root = tmp_path_factory.mktemp("pictures")
    for split, count in (("train", 11), ("test", 5)):
        for name in ("a", "b"):
            (root / split / name).mkdir(parents=True)
        for index in range(count):
            file = root / split / "ab"[index % 2] / f"{index}.jpg"
            file.write_bytes(encode(index, (90 + index, 70), form="JPEG"))
    return load("pictures", root=root, image_size=40, in_memory=False)


def same(first: Batch, second: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_epoch_of_training_shows_every_image_once(digits: ImageData) -> None:
    batches = Batches(digits.train, digits, batch_size=32, train=True)
    shown = list(batches.epoch(0))
    assert len(shown) == len(batches) == 7
    indices = torch.cat([batch.indices for batch in shown])
    assert sorted(indices.tolist()) == list(range(203))
    assert indices.tolist() != list(range(203))
    labels = torch.cat([batch.labels for batch in shown])
    assert torch.equal(labels, digits.train.labels[indices])


def test_testing_keeps_the_order_and_leaves_the_images(digits: ImageData) -> None:
    batches = Batches(digits.test, digits, batch_size=20, train=False, augment=AUGMENT)
    shown = list(batches.epoch(0))
    assert torch.cat([batch.indices for batch in shown]).tolist() == list(range(57))
    images = torch.cat([batch.images for batch in shown])
    assert isinstance(digits.test.images, torch.Tensor)
    expected = (digits.test.images.double() / 255 - digits.mean[0]) / digits.std[0]
    assert images.dtype == torch.float32
    torch.testing.assert_close(images.double(), expected, atol=1e-5, rtol=1e-5)


def test_the_last_batch_is_dropped_on_request(digits: ImageData) -> None:
    batches = Batches(digits.train, digits, batch_size=32, train=True, drop_last=True)
    assert [len(batch.labels) for batch in batches.epoch(0)] == [32] * len(batches) == [32] * 6


@pytest.mark.parametrize("kind", ["digits", "pictures"])
def test_batches_depend_on_seed_and_epoch_alone(kind: str, request: pytest.FixtureRequest) -> None:
    data: ImageData = request.getfixturevalue(kind)

    def first(seed: int, epoch: int) -> Batch:
        return next(
            Batches(data.train, data, batch_size=8, train=True, augment=AUGMENT, seed=seed).epoch(
                epoch
            )
        )

    torch.manual_seed(0)
    state = torch.get_rng_state()
    batch = first(1, 2)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert same(batch, first(1, 2))
    assert not same(batch, first(1, 3))
    assert not same(batch, first(2, 2))


def test_every_epoch_and_every_seed_has_an_order_of_its_own(digits: ImageData) -> None:
    orders = set()
    for seed in (0, 1):
        batches = Batches(digits.train, digits, batch_size=203, train=True, seed=seed)
        orders |= {tuple(next(batches.epoch(epoch)).indices.tolist()) for epoch in (0, 1, 2)}
    assert len(orders) == 6


def test_a_picture_is_cropped_anew_in_every_epoch(pictures: ImageData) -> None:
    crops = set()
    for seed in (0, 1):
        batches = Batches(
            pictures.train, pictures, batch_size=11, train=True, augment=Augmentation(), seed=seed
        )
        for epoch in (0, 1):
            batch = next(batches.epoch(epoch))
            crops.add(batch.images[batch.indices == 3].numpy().tobytes())
    assert len(crops) == 4


@pytest.mark.parametrize("kind", ["digits", "pictures"])
@pytest.mark.parametrize("train", [True, False])
def test_going_on_in_the_middle_of_an_epoch_changes_nothing(
    kind: str, train: bool, request: pytest.FixtureRequest
) -> None:
    data: ImageData = request.getfixturevalue(kind)

    def batches() -> Batches:
        return Batches(data.train, data, batch_size=3, train=train, augment=AUGMENT, seed=4)

    whole = list(batches().epoch(7))
    for start in (0, 1, len(whole) - 1, len(whole)):
        rest = list(batches().epoch(7, start=start))
        assert len(rest) == len(whole) - start
        assert all(map(same, whole[start:], rest))


def test_augmentation_differs_from_batch_to_batch_and_image_to_image(digits: ImageData) -> None:
    split = replace(
        digits.train,
        images=torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8).expand(203, 1, 8, 8),
    )
    shown = list(Batches(split, digits, batch_size=50, train=True, augment=AUGMENT).epoch(0))
    assert not torch.equal(shown[0].images, shown[1].images)
    assert len(torch.unique(shown[0].images.flatten(1), dim=0)) > 20


@pytest.mark.parametrize("kind", ["digits", "pictures"])
@pytest.mark.parametrize("train", [True, False])
def test_the_parts_of_all_ranks_are_the_batch_of_one_process(
    kind: str, train: bool, request: pytest.FixtureRequest
) -> None:
    data: ImageData = request.getfixturevalue(kind)
    options = {"batch_size": 4, "train": train, "augment": AUGMENT, "seed": 1}
    alone = Batches(data.train, data, **options)  # type: ignore[arg-type]
    ranks = [Batches(data.train, data, rank=r, world=2, **options) for r in range(2)]  # type: ignore[arg-type]
    assert {len(rank) for rank in ranks} == {len(alone)}
    for whole, *parts in zip(alone.epoch(3), *(rank.epoch(3) for rank in ranks), strict=True):
        joined = Batch(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
        assert same(whole, joined)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 40),
    batch_size=st.integers(1, 50),
    world=st.integers(1, 5),
    start=st.integers(0, 5),
)
def test_testing_with_any_number_of_ranks_shows_every_image_once(
    count: int, batch_size: int, world: int, start: int
) -> None:
    labels = torch.arange(count)
    images = labels.to(torch.uint8).view(-1, 1, 1, 1)
    split = Split(images=images, labels=labels, clean_labels=labels)
    data = ImageData(
        name="x",
        classes=tuple(map(str, range(count))),
        train=split,
        validation=None,
        test=split,
        mean=(0.0,),
        std=(1.0,),
        channels=1,
        image_size=1,
    )
    ranks = [
        Batches(split, data, batch_size=batch_size, train=False, rank=rank, world=world)
        for rank in range(world)
    ]
    start = min(start, len(ranks[0]))
    shown = [list(rank.epoch(0, start=start)) for rank in ranks]
    assert len({len(batches) for batches in shown}) == 1
    indices = sorted(i for batches in shown for batch in batches for i in batch.indices.tolist())
    assert indices == list(range(start * batch_size, count))


def test_channels_last_changes_the_layout_only(digits: ImageData) -> None:
    options = {"batch_size": 16, "train": True, "augment": Augmentation(crop_padding=1, cutout=3)}
    rgb = Split(
        images=torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8),
        labels=torch.zeros(40, dtype=torch.int64),
        clean_labels=torch.zeros(40, dtype=torch.int64),
    )
    data = replace(digits, mean=(0.1, 0.2, 0.3), std=(0.3, 0.2, 0.1), channels=3)
    plain = next(Batches(rgb, data, **options).epoch(0)).images  # type: ignore[arg-type]
    last = next(Batches(rgb, data, channels_last=True, **options).epoch(0)).images  # type: ignore[arg-type]
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert plain.is_contiguous()
    assert torch.equal(plain, last)


def test_the_split_is_left_as_it_was(digits: ImageData) -> None:
    assert isinstance(digits.train.images, torch.Tensor)
    before = digits.train.images.clone()
    for batch in Batches(digits.train, digits, batch_size=32, train=True, augment=AUGMENT).epoch(0):
        batch.images.zero_()
        batch.labels.zero_()
    assert torch.equal(digits.train.images, before)
    assert digits.train.labels.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 300, "drop_last": True}, "batch_size must be at most 203, .* got 300"),
        ({"rank": 2, "world": 2}, "rank must be below world = 2, got 2"),
        ({"rank": -1}, "rank must be at least 0, got -1"),
        ({"world": 0}, "world must be at least 1, got 0"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
        ({"batch_size": 5, "world": 2}, "batch_size must be a multiple of world = 2, got 5"),
        ({"batch_size": 202, "world": 2}, "1 image for 2 processes"),
    ],
)
def test_bad_arguments_get_one_line(
    digits: ImageData, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Batches(digits.train, digits, **({"batch_size": 32, "train": True} | options))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_an_empty_split_is_refused(digits: ImageData) -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    split = Split(
        images=torch.empty((0, 1, 8, 8), dtype=torch.uint8), labels=nothing, clean_labels=nothing
    )
    with pytest.raises(ValueError, match="empty"):
        Batches(split, digits, batch_size=32, train=False)


@pytest.mark.parametrize("start", [-1, 8])
def test_a_start_outside_the_epoch_is_refused(digits: ImageData, start: int) -> None:
    with pytest.raises(ValueError, match=rf"start must lie in 0\.\.7, got {start}"):
        Batches(digits.train, digits, batch_size=32, train=True).epoch(0, start=start)


def test_a_split_with_a_label_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="images: 3, labels: 2"):
        Split(images=torch.zeros(3, 1, 8, 8), labels=torch.zeros(2), clean_labels=torch.zeros(3))


def test_worker_processes_change_nothing(pictures: ImageData) -> None:
    def epoch(workers: int) -> list[Batch]:
        batches = Batches(
            pictures.train, pictures, batch_size=4, train=True, augment=AUGMENT, workers=workers
        )
        return list(batches.epoch(0, start=1))

    torch.manual_seed(0)
    state = torch.get_rng_state()
    assert all(map(same, epoch(0), epoch(1)))
    assert torch.equal(torch.get_rng_state(), state)


def test_encoded_images_travel_to_workers_that_are_not_forked(pictures: ImageData) -> None:
    images = pictures.train.images
    copy = pickle.loads(pickle.dumps(images))
    assert len(pickle.dumps(images)) < 20_000
    assert copy[5].tobytes() == images[5].tobytes()  # type: ignore[union-attr]


def test_large_images_are_cropped_to_size(pictures: ImageData) -> None:
    for train in (True, False):
        split = pictures.train if train else pictures.test
        batch = next(Batches(split, pictures, batch_size=4, train=train, augment=AUGMENT).epoch(0))
        assert batch.images.shape == (4, 3, 40, 40)
        assert batch.images.dtype == torch.float32


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_large_image_gets_one_line(tmp_path: Path, workers: int) -> None:
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "0.jpg").write_bytes(encode(0, (80, 80), form="JPEG"))
    (tmp_path / "train" / "b" / "1.jpg").write_bytes(encode(0, (80, 80), form="JPEG")[:300])
    data = load("mine", root=tmp_path)
    batches = Batches(data.train, data, batch_size=2, train=False, workers=workers)
    with pytest.raises(ValueError, match="image 2 of the train split cannot be decoded") as error:
        list(batches.epoch(0))
    assert "\n" not in str(error.value)
