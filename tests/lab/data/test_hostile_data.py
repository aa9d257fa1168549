"""Data of others: nothing in it starts a program, leaves its folder, hangs or fills the memory."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import pytest
import torch
from image_files import WriteParquet, encode

from friendly_sam.lab import memory
from friendly_sam.lab.data import content, load
from friendly_sam.lab.data import parquet as parquet_files
from friendly_sam.lab.data.columns import find_columns
from friendly_sam.lab.data.pixels import PART, open_picture, stored_bytes
from friendly_sam.lab.data.selection import Selection
from friendly_sam.lab.data.source import Source
from friendly_sam.lab.errors import LabError

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(x) (w) file\n"


def claiming(width: int, height: int) -> bytes:
    """A PNG whose header claims a size."""
    data = bytearray(encode(0, (8, 8)))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (EPS, "not one of JPEG, PNG, WEBP, BMP, GIF, TIFF"),
        (b"P6\n8 8\n255\n" + bytes(192), "not one of JPEG"),
        (claiming(1, 80_000_000), "80,000,000 pixels, at most 67,108,864 are allowed"),
        (claiming(30_000, 30_000), "900000000 pixels"),
    ],
)
def test_only_a_few_formats_and_sizes_are_decoded(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"image 0 cannot be decoded: .*{reason}"):
        open_picture({"bytes": data}, what="image 0")


def test_a_thin_image_is_not_blown_up(write_parquet: WriteParquet) -> None:
    thin = encode(0, (1, 3_000_000))
    write_parquet("train", [0, 1], images=[encode(0, (8, 8)), thin])
    with pytest.raises(ValueError, match=r"image 1 of the train split: resized, .* pixels"):
        load("mine", root=write_parquet("test", [0]))


def test_an_image_file_outside_of_the_data_is_not_opened(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (tmp_path / "mine.png").write_bytes(encode(0, (8, 8)))
    (root / "link.png").symlink_to(tmp_path / "mine.png")
    (root / "inside.png").write_bytes(encode(0, (8, 8)))
    os.mkfifo(root / "fifo")
    for path in (str(tmp_path / "mine.png"), "../mine.png", "link.png", "/dev/zero"):
        with pytest.raises(ValueError, match="image 0 lies outside of the data folder"):
            open_picture({"path": path}, what="image 0", root=root)
    for path, reason in (("fifo", "it is a FIFO"), ("nowhere", "No such file"), ("a\0b", "path")):
        with pytest.raises(ValueError, match=reason):
            open_picture({"path": path}, what="image 0", root=root)
    with pytest.raises(ValueError, match="this data has no folder"):
        open_picture({"path": "inside.png"}, what="image 0")
    assert open_picture({"path": "inside.png"}, what="image 0", root=root).size == (8, 8)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([0.0, 1.0], "column 'label' of .* holds double values: labels must be whole numbers"),
        ([float("nan")] * 2, "holds double values"),
        (["cat", "dog"], "holds string values"),
        ([True, False], "holds bool values"),
        ([None, 1], "rows without a label"),
        ([0, 3_000_000_000], "3,000,000,001 classes for 2 training images .* at most 10,000"),
        ([0, 10_000_000], "10,000,001 classes"),
        ([0, -1], "got -1"),
    ],
)
def test_labels_that_are_none_are_named(labels: list[object], reason: str, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    images = [{"bytes": encode(0, (8, 8)), "path": None}] * 2
    for split in ("train", "test"):
        table = pa.table({"img": images, "label": labels})
        parquet.write_table(table, tmp_path / f"{split}.parquet")
    with pytest.raises(ValueError, match=reason):
        load("mine", root=tmp_path)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([0.0, 1.0], "column 'label' of 'owner/name' holds double values: labels must be whole"),
        ([float("nan")] * 2, "holds double values"),
        (["cat", "dog"], "holds string values"),
        ([None, 1], "rows without a label"),
        ([0, 1], None),
    ],
)
def test_labels_of_the_hub_that_are_none_are_named(
    labels: list[object], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    images = [{"bytes": encode(number, (8, 8)), "path": None} for number in range(2)]
    table = datasets.Dataset.from_dict({"picture": images, "label": labels, "kind": [1, 0]})
    table = table.cast_column("picture", datasets.Image())
    monkeypatch.setattr(datasets, "load_dataset", lambda _: {"train": table, "test": table})
    if reason is not None:
        with pytest.raises(ValueError, match=reason):
            load("owner/name")
    named = datasets.ClassLabel(names=["a", "b"])
    table = table.cast_column("kind" if reason else "label", named)
    if labels[0] is not None:  # whole numbers, if not all
        data = load("owner/name")
        assert data.classes == ("a", "b")
        assert data.train.labels.sum() == 1


def test_metadata_that_asks_for_a_billion_classes_is_not_followed(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    images = [{"bytes": encode(0, (8, 8)), "path": None}] * 2
    table = pa.table({"img": images, "label": [0, 1]})
    text = b'{"info": {"features": {"label": {"_type": "ClassLabel", "num_classes": 1000000000}}}}'
    for split in ("train", "test"):
        spoilt = table.replace_schema_metadata({b"huggingface": text})
        parquet.write_table(spoilt, tmp_path / f"{split}.parquet")
    assert load("mine", root=tmp_path).classes == ("0", "1")


def test_a_file_that_unpacks_without_end_is_refused(
    write_parquet: WriteParquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    root = write_parquet("test", [0])
    one = pa.DictionaryArray.from_arrays(pa.array([0] * 2000), pa.array([bytes(100_000)]))
    table = pa.table({"img": one, "label": [0] * 2000})
    parquet.write_table(table, root / "train.parquet", compression="zstd", store_schema=False)
    assert (root / "train.parquet").stat().st_size < 10_000
    monkeypatch.setattr(parquet_files, "MOST_UNPACKED", 10 << 20)
    with pytest.raises(ValueError, match=r"train\.parquet.*unpacks to more than 10.5 MB"):
        load("mine", root=root)
    monkeypatch.setattr(parquet_files, "MOST_ROWS", 1000)
    with pytest.raises(ValueError, match=r"claims 2,000 rows in .* bytes: beyond 1,000 a row"):
        load("mine", root=root)


def test_a_file_is_converted_in_pieces_of_a_bounded_size(
    write_parquet: WriteParquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import parquet

    asked: list[int] = []
    read = parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        parquet.ParquetFile,
        "iter_batches",
        lambda file, rows, **options: asked.append(rows) or read(file, rows, **options),
    )
    monkeypatch.setattr(parquet_files, "BYTES_AT_A_TIME", 0)
    path = write_parquet("train", [0, 1, 2]) / "train.parquet"
    columns = find_columns(parquet_files.schema_of(path), "train")
    table = parquet_files.arrow_file([path], columns, path.parent / "cache").data
    assert table.column("label").to_pylist() == [0, 1, 2]
    assert [len(piece) for piece in table.column("image").chunks] == [1, 1, 1]
    assert asked == [1]


def test_images_are_refused_with_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 5 * 10**6)  # half of it is for training
    with pytest.raises(LabError, match=r"1,797 images of 40x40 in memory would take 2.88 MB"):
        load("digits", image_size=40)


@pytest.mark.parametrize("name", ["da$ta", "a::b", "zip:", "é \t"])
def test_any_name_of_a_folder_is_read(
    name: str, tmp_path: Path, write_parquet: WriteParquet
) -> None:
    write_parquet("train", [0, 1])
    root = write_parquet("test", [1]).rename(tmp_path / name)
    assert len(load("mine", root=root).train) == 2


def test_a_fifo_among_the_data_is_refused(tmp_path: Path, write_parquet: WriteParquet) -> None:
    write_parquet("train", [0, 1])
    root = write_parquet("test", [1])
    (root / "test.parquet").unlink()
    os.mkfifo(root / "test.parquet")
    with pytest.raises(LabError, match="it is a FIFO, not a regular file"):
        load("mine", root=root)
    for split in ("train", "test"):
        (tmp_path / "folders" / split / "cat").mkdir(parents=True)
        (tmp_path / "folders" / split / "cat" / "a.png").write_bytes(encode(0, (8, 8)))
    os.mkfifo(tmp_path / "folders" / "train" / "cat" / "b.png")
    with pytest.raises(ValueError, match=r"'train/cat/b\.png' in .* is not a regular file"):
        load("mine", root=tmp_path / "folders")


@pytest.mark.parametrize("name", ["train/cat/b.png", "train/loop"])
def test_a_link_to_itself_among_the_images_is_no_file_and_no_class(
    name: str, tmp_path: Path
) -> None:
    for split in ("train", "test"):
        (tmp_path / split / "cat").mkdir(parents=True)
        (tmp_path / split / "cat" / "a.png").write_bytes(encode(0, (8, 8)))
    (tmp_path / name).symlink_to(Path(name).name)
    if name.endswith(".png"):
        with pytest.raises(ValueError, match=r"'train/cat/b\.png' in .* is not a regular file"):
            load("mine", root=tmp_path)
    else:
        assert load("mine", root=tmp_path).classes == ("cat",)


def test_a_file_replaced_under_the_same_name_and_time_is_read_again(
    write_parquet: WriteParquet,
) -> None:
    root = write_parquet("test", [0, 1])
    path = write_parquet("train", [0, 1]) / "train.parquet"
    first, before = load("mine", root=root), path.stat()
    write_parquet("train", [0, 1], images=[encode(1, (8, 8)), encode(0, (8, 8))])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    second = load("mine", root=root)
    assert first.digest != second.digest
    assert not first.train.images.equal(second.train.images)  # type: ignore[union-attr,arg-type]
    assert load("mine", root=root).digest == second.digest


def test_the_digest_is_of_what_is_stored_not_of_how_it_is_kept(
    write_parquet: WriteParquet,
) -> None:
    write_parquet("train", [0, 1, 2])
    root = write_parquet("test", [0])
    digests = {load("mine", root=root, in_memory=kept).digest for kept in (True, False, None)}
    assert len(digests) == 1
    assert load("mine", root=root, classes=(0, 1)).digest not in digests


def test_a_large_file_is_known_by_head_tail_and_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "READ_WHOLE", 0)
    path = tmp_path / "large.parquet"
    whole = bytes(3 * content.SAMPLE_BYTES)
    path.write_bytes(whole)
    digests = {content.digest_of_files([path])}
    for place in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + b"x" + whole[place + 1 :])
        digests.add(content.digest_of_files([path]))
    path.write_bytes(whole + b"\0")
    digests.add(content.digest_of_files([path]))
    assert len(digests) == 5


def test_other_labels_and_other_image_files_are_another_digest(
    tmp_path: Path, write_parquet: WriteParquet
) -> None:
    root = write_parquet("test", [0])
    digests = set()
    for labels in ([0, 1], [1, 0]):
        write_parquet("train", labels)
        digests.add(load("mine", root=root).digest)
    for name in ("cat", "dog"):
        (tmp_path / "folders" / name).mkdir(parents=True)
        for number in range(5):
            path = tmp_path / "folders" / name / f"{number}.png"
            path.write_bytes(encode(number, (8, 8)))
    digests.add(load("mine", root=tmp_path / "folders").digest)
    path.write_bytes(encode(7, (8, 8)))  # the last of the dogs
    digests.add(load("mine", root=tmp_path / "folders").digest)
    assert len(digests) == 4


def test_a_large_image_file_is_known_by_its_tail_too(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(bytes(3 * PART))
    first = stored_bytes({"path": "a.png"}, what="image 0", root=tmp_path)
    path.write_bytes(bytes(3 * PART - 1) + b"x")
    assert stored_bytes({"path": "a.png"}, what="image 0", root=tmp_path) != first


def test_images_that_come_decoded_are_in_the_digest() -> None:
    images = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    source = Source(rows=images, labels=torch.zeros(3, dtype=torch.int64), class_names=None)
    first = Selection.whole("train", source).digest()
    images[2, 0, 7, 7] = 1
    assert Selection.whole("train", source).digest() != first


def test_more_names_of_classes_than_any_data_has_are_refused(write_parquet: WriteParquet) -> None:
    names = [str(number) for number in range(10_001)]
    root = write_parquet("test", [0], names=names)
    write_parquet("train", [0, 1], names=names)
    with pytest.raises(ValueError, match=r"10,001 classes for 2 training images \(the data names"):
        load("mine", root=root)


def test_a_path_in_a_parquet_file_leads_nowhere_else(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "data").mkdir()
    (tmp_path / "mine.png").write_bytes(encode(0, (8, 8)))
    images = [{"bytes": None, "path": str(tmp_path / "mine.png")}] * 2
    struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"img": pa.array(images, struct), "label": [0, 1]})
    for split in ("train", "test"):
        parquet.write_table(table, tmp_path / "data" / f"{split}.parquet")
    with pytest.raises(ValueError, match="lies outside of the data folder"):
        load("mine", root=tmp_path / "data")


def test_a_link_in_a_folder_of_images_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(encode(0, (8, 8)))
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(5):
            (tmp_path / "data" / name / f"{number}.png").symlink_to(tmp_path / "mine.png")
    with pytest.raises(ValueError, match="lies outside of the data folder"):
        load("mine", root=tmp_path / "data")
