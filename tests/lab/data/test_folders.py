from pathlib import Path

import pytest
import torch
from image_files import WriteParquet, encode
from torch import Tensor

from friendly_sam.lab.data import EncodedImages, load


def test_a_folder_needs_no_known_name(write_parquet: WriteParquet) -> None:
    write_parquet("train-0", [0, 1, 2, 1])
    root = write_parquet("test-0", [2, 0])
    data = load("mine", root=root)
    assert data.classes == ("a", "b", "c")
    assert data.train.labels.tolist() == [0, 1, 2, 1]
    assert isinstance(data.train.images, Tensor)
    assert data.train.images.shape == (4, 3, 8, 8)
    assert (len(data.test), data.channels, data.image_size) == (2, 3, 8)


@pytest.mark.parametrize("label", ["label", "fine_label", "labels", "breed"])
@pytest.mark.parametrize("image", ["img", "image", "photo"])
def test_columns_are_found_by_what_they_hold(
    write_parquet: WriteParquet, image: str, label: str
) -> None:
    write_parquet("train", [0, 1], image=image, label=label)
    root = write_parquet("test", [1], image=image, label=label)
    assert load("mine", root=root).train.labels.tolist() == [0, 1]


def test_parquet_without_the_hubs_metadata_is_read(write_parquet: WriteParquet) -> None:
    write_parquet("train", [0, 1, 4], plain=True)
    root = write_parquet("test", [1], plain=True)
    data = load("mine", root=root)
    assert data.classes == ("0", "1", "2", "3", "4")
    assert isinstance(data.train.images, Tensor)


def test_a_lone_validation_split_is_tested_on(write_parquet: WriteParquet) -> None:
    write_parquet("train", [0, 1, 2])
    root = write_parquet("validation", [1, 2])
    data = load("mine", root=root)
    assert len(data.test) == 2
    assert data.validation is None


def test_imagenet_is_tested_on_its_validation_split(write_parquet: WriteParquet) -> None:
    write_parquet("train", [0, 1, 2])
    write_parquet("validation", [1, 2])
    root = write_parquet("test", [-1])
    assert load("imagenet", root=root).test.labels.tolist() == [1, 2]


def test_an_own_validation_split_is_used_unless_one_is_cut(write_parquet: WriteParquet) -> None:
    write_parquet("train", [0, 1, 2, 2])
    write_parquet("validation", [1, 2])
    root = write_parquet("test", [0])
    own, cut = load("mine", root=root), load("mine", root=root, validation_size=1)
    assert own.validation is not None
    assert cut.validation is not None
    assert (len(own.train), len(own.validation)) == (4, 2)
    assert (len(cut.train), len(cut.validation)) == (3, 1)


def image_folder(root: Path, size: tuple[int, int], test: str = "val") -> Path:
    for split in ("train", test):
        for number, name in enumerate(("cat", "dog")):
            (root / split / name).mkdir(parents=True)
            for index in range(3):
                file = root / split / name / f"{index}.jpg"
                file.write_bytes(encode(10 * number + index, size, form="JPEG"))
    return root


@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_an_image_folder_is_read(tmp_path: Path, test: str) -> None:
    data = load("mine", root=image_folder(tmp_path, (300, 200), test))
    assert data.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert len(data.test) == 6
    assert isinstance(data.train.images, EncodedImages)
    assert data.train.images[0].size == (300, 200)
    assert data.image_size == 224


def test_brackets_in_a_path_are_no_pattern(tmp_path: Path, write_parquet: WriteParquet) -> None:
    assert len(load("mine", root=image_folder(tmp_path / "run[1]", (8, 8))).train) == 6
    write_parquet("train", [0, 1])
    root = write_parquet("test", [1]).rename(tmp_path / "data[2]")
    assert len(load("mine", root=root).train) == 2


def test_an_image_folder_goes_into_memory_when_it_is_shrunk(tmp_path: Path) -> None:
    data = load("mine", root=image_folder(tmp_path, (30, 20)), image_size=10)
    assert isinstance(data.train.images, Tensor)
    assert data.train.images.shape == (6, 3, 10, 10)


def test_grey_images_keep_one_channel(write_parquet: WriteParquet) -> None:
    images = [encode(index, (8, 8), mode="L") for index in range(2)]
    write_parquet("train", [0, 1], images=images)
    root = write_parquet("test", [0, 1], images=images)
    data = load("mine", root=root)
    assert (data.channels, len(data.mean), len(data.std)) == (1, 1, 1)
    assert load("cifar10", root=root).channels == 3


def test_images_come_pixel_for_pixel(write_parquet: WriteParquet) -> None:
    import numpy as np

    write_parquet("train", [0, 1])
    data = load("mine", root=write_parquet("test", [0]))
    assert isinstance(data.train.images, Tensor)
    expected = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    assert torch.equal(data.train.images[1], torch.from_numpy(expected).permute(2, 0, 1))


def one_line(error: pytest.ExceptionInfo[BaseException]) -> None:
    assert "\n" not in str(error.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no data folder .*nowhere") as error:
        load("mine", root=tmp_path / "nowhere")
    one_line(error)


def test_a_folder_without_a_train_split_is_refused(
    tmp_path: Path, write_parquet: WriteParquet
) -> None:
    with pytest.raises(FileNotFoundError, match="no train split") as error:
        load("mine", root=tmp_path)
    one_line(error)
    with pytest.raises(FileNotFoundError, match="no train split"):
        load("mine", root=write_parquet("test", [0]))


def test_a_folder_without_a_test_split_is_refused(write_parquet: WriteParquet) -> None:
    with pytest.raises(ValueError, match="no test split") as error:
        load("mine", root=write_parquet("train", [0]))
    one_line(error)


def test_an_empty_train_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(ValueError, match="cannot read the data") as error:
        load("mine", root=tmp_path)
    one_line(error)


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_a_cut_off_parquet_file_is_named(write_parquet: WriteParquet, keep: float) -> None:
    write_parquet("train", [0, 1, 2] * 20)
    root = write_parquet("test", [0])
    file = root / "train.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keep if keep >= 1 else keep * len(whole))])
    with pytest.raises(ValueError, match=r"train\.parquet' is damaged or cut off") as error:
        load("mine", root=root)
    one_line(error)


@pytest.mark.parametrize("wrong", [-1, 3])
@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_out_of_range_are_refused(
    write_parquet: WriteParquet, split: str, wrong: int
) -> None:
    write_parquet("train", [0, wrong if split == "train" else 1])
    root = write_parquet("test", [0, wrong if split == "test" else 1])
    with pytest.raises(ValueError, match=f"{split}.*0..2.* got {wrong}|label {wrong}") as error:
        load("mine", root=root)
    one_line(error)


@pytest.mark.parametrize("split", ["train", "test"])
def test_an_empty_split_is_refused(write_parquet: WriteParquet, split: str) -> None:
    write_parquet("train", [] if split == "train" else [0])
    root = write_parquet("test", [] if split == "test" else [0])
    with pytest.raises(ValueError, match=f"the {split} split in .* is empty") as error:
        load("mine", root=root)
    one_line(error)


@pytest.mark.parametrize("damage", [b"no image", encode(0, (8, 8))[:60], b""])
def test_a_damaged_image_is_named(write_parquet: WriteParquet, damage: bytes) -> None:
    write_parquet("train", [0, 1, 2], images=[encode(0, (8, 8)), encode(1, (8, 8)), damage])
    root = write_parquet("test", [0])
    with pytest.raises(ValueError, match="image 2 of the train split cannot be decoded") as error:
        load("mine", root=root)
    one_line(error)


def test_a_table_without_images_or_labels_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    for split in ("train", "test"):
        parquet.write_table(pa.table({"label": [0, 1]}), tmp_path / f"{split}.parquet")
    with pytest.raises(ValueError, match="no image column"):
        load("mine", root=tmp_path)


def test_a_folder_without_splits_holds_out_a_fifth_of_each_class(tmp_path: Path) -> None:
    for name, count in (("cat", 10), ("dog", 7)):
        (tmp_path / name).mkdir()
        for index in range(count):
            (tmp_path / name / f"{index}.png").write_bytes(encode(100 * count + index, (8, 8)))
    first, other = load("mine", root=tmp_path), load("mine", root=tmp_path, seed=3)
    assert first.classes == ("cat", "dog")
    assert torch.bincount(first.test.labels).tolist() == [2, 2]
    assert torch.bincount(first.train.labels).tolist() == [8, 5]
    assert isinstance(first.test.images, Tensor)
    assert isinstance(other.test.images, Tensor)
    assert torch.equal(first.test.images, other.test.images)
    seen = {image.numpy().tobytes() for image in first.train.images}
    assert not any(image.numpy().tobytes() in seen for image in first.test.images)


def test_one_folder_of_images_is_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "0.png").write_bytes(encode(0, (8, 8)))
    with pytest.raises(FileNotFoundError, match="has no train split"):
        load("mine", root=tmp_path)
