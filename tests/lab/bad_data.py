"""Bad data: labels, images, files and metadata that should not be."""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_values import DICE, PLACES, damaged, replace_by
from hypothesis import strategies as st
from material import picture

LABELS: list[Any] = [
    [0.5] * 12,
    [float("nan")] * 12,
    ["cat"] * 12,
    [None] * 12,
    [3_000_000_000] * 12,
    [10_000_000] * 12,
    [-1] * 12,
    [2**62] * 12,
    [True] * 12,
    [[1]] * 12,
    [0] * 12,
    [9_999] * 12,
    [10_001] * 12,
]
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(x) (w) file\n"
PATHS = ["/etc/passwd", "../../outside/.bashrc", "fifo", "/dev/zero", "a\0b", "x" * 5000, "", "."]
ROOTS = ["data", "da$ta", "a::b", "da[t]a", "zip:/x", "é", " ", "a\nb"]
FEATURES = [
    b'"label": {"num_classes": 1000000000, "_type": "ClassLabel"}, "img": {"_type": "Image"}',
    b'"label": {"names": 5, "_type": "ClassLabel"}',
    b'"label": {"names": ["\\u001b[2J", "$", "b"], "_type": "ClassLabel"}',
    b'"img": {"_type": "Audio"}, "label": {"_type": "Video"}',
]
METADATA = [b"{", b"[" * 5000, b'{"info": 3}']
METADATA += [b'{"info": {"features": {' + text + b"}}}" for text in FEATURES]


def _images() -> list[bytes]:
    found = [
        picture(0, form) for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "PCX")
    ]
    found += [EPS, b"", b"x", picture(0)[:40], _bomb(30_000, 30_000), _bomb(1, 60_000_000)]
    return [*found, _bomb(1, 80_000_000), _bomb(2**31 - 1, 1), b"P6\n99999 99999\n255\n"]


def _bomb(width: int, height: int) -> bytes:
    """A PNG whose header claims a size."""
    import struct
    import zlib

    content = bytearray(picture(0))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    return bytes(content)


def data_sets(material: Path) -> st.SearchStrategy[Callable[[Path], list[str]]]:
    """A parquet file or a folder of images with something wrong."""
    change = st.one_of(
        DICE,
        DICE,
        st.tuples(st.just("labels"), st.sampled_from(LABELS)),
        st.tuples(st.just("image"), st.sampled_from(_images())),
        st.tuples(st.just("damaged image"), DICE),
        st.tuples(st.just("path"), st.sampled_from(PATHS)),
        st.tuples(st.just("metadata"), st.sampled_from(METADATA)),
        st.tuples(st.just("rows"), st.sampled_from([2_000_000, 3_000_000])),
        st.tuples(st.just("unpack"), st.just(0)),
        st.tuples(st.just("place"), st.sampled_from(PLACES)),
        st.tuples(st.just("folder"), st.sampled_from([*PLACES, None])),
    )
    sizes = st.sampled_from([None] * 6 + [1, 3, 64, 4000])
    split = st.sampled_from(["train", "train", "test"])
    return st.builds(_input, st.just(material), change, split, st.sampled_from(ROOTS), sizes)


def _input(
    material: Path, change: Any, split: str, root: str, size: int | None
) -> Callable[[Path], list[str]]:
    def prepare(place: Path) -> list[str]:
        folder = place / "outside" / root.replace("/", "-")
        shutil.copytree(material / "data", folder)
        _spoil(folder, folder / f"{split}.parquet", change)
        arguments = [
            "train",
            "--data.name",
            "mine",
            "--data.root",
            str(folder),
            "--model.name",
            "mlp",
        ]
        arguments += ["--data.batch_size", "4", "--epochs", "1", "--engine.tensorboard", "false"]
        arguments += [] if size is None else ["--data.image_size", str(size)]
        return [*arguments, "--engine.threads", "1", "--output", "run"]

    return prepare


def _spoil(folder: Path, path: Path, change: Any) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    if isinstance(change, random.Random):
        path.write_bytes(damaged(path.read_bytes(), change))
        return
    kind, value = change
    table = parquet.read_table(path)
    images, count = table.column("img").to_pylist(), table.num_rows
    if kind == "labels":
        table = pa.table({"img": images, "label": value[:count]})
    elif kind == "image":
        images[-1] = {"bytes": value, "path": None}
    elif kind == "damaged image":
        form = value.choice(("PNG", "JPEG", "GIF", "TIFF", "WEBP"))
        images[0] = {"bytes": damaged(picture(0, form), value), "path": None}
    elif kind == "path":
        os.mkfifo(folder / "fifo")
        images[-1] = {"bytes": None, "path": value}
    elif kind == "metadata":
        table = table.replace_schema_metadata({b"huggingface": value})
    elif kind == "rows":
        nothing = pa.nulls(value, table.schema.field("img").type)
        table = pa.table({"img": nothing, "label": pa.repeat(0, value)})
    elif kind == "unpack":
        _write_unpacking(path)
        return
    elif kind == "place":
        replace_by(path, value)
        return
    else:
        _as_folders(folder, value)
        return
    if kind in ("image", "damaged image", "path"):
        struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        table = pa.table({"img": pa.array(images, struct), "label": table.column("label")})
    parquet.write_table(table, path)


def _write_unpacking(path: Path) -> None:
    """Write one image of 4 MB a thousand times, in a few kilobytes."""
    import pyarrow as pa
    from pyarrow import parquet

    one = pa.DictionaryArray.from_arrays(pa.array([0] * 1000), pa.array([bytes(4_000_000)]))
    table = pa.table({"img": one, "label": [0] * 1000})
    parquet.write_table(table, path, compression="zstd", store_schema=False)


def _as_folders(folder: Path, kind: str | None) -> None:
    for name in ("train", "test"):
        (folder / f"{name}.parquet").unlink()
        for label in ("cat", "dog"):
            (folder / name / label).mkdir(parents=True)
            for number in range(3):
                (folder / name / label / f"{number}.png").write_bytes(picture(number))
    odd = folder / "train" / "cat" / "odd.png"
    if kind is None:
        odd.write_bytes(io.BytesIO(EPS).getvalue())
    else:
        replace_by(odd, kind)
