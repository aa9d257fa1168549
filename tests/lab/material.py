"""The runs and the data that bad inputs are made from."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

from fork_server import forked
from lab_runs import tiny_config

from friendly_sam.lab.cli import main
from friendly_sam.lab.training.trainer import train


def make_material(folder: Path) -> Path:
    """Write a run that is finished, one that was cut off, and data; return their folder."""
    material = folder / "material"
    material.mkdir()
    write_data(material / "data")
    assert forked(lambda: _make(material), learn=True) == 0
    return material


class _Cut:
    def step(self, epoch: int, batch: int, batches: int) -> None:
        if (epoch, batch) == (2, 2):
            raise KeyboardInterrupt

    def epoch(self, metrics: dict[str, float]) -> None:
        pass


def _make(material: Path) -> int:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    os.environ["HF_DATASETS_CACHE"] = str(material / "cache")
    config = tiny_config(material / "finished", method={"name": "fsam"}, epochs=2,
                         data={"train_size": 64, "test_size": 40, "batch_size": 32})  # fmt: skip
    train(config)
    arguments = ["sharpness", str(material / "finished"), "--images", "20", "--grid", "3"]
    if main([*arguments, "--output", str(material / "page.html")]):
        return 1
    cut = tiny_config(material / "cut", method={"name": "fsam"}, epochs=2,
                      data={"train_size": 96, "test_size": 40, "batch_size": 32},
                      engine={"checkpoint_steps": 1})  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):
        train(cut, listener=_Cut())
    images = tiny_config(material / "images", epochs=1,
                         data={"name": "mine", "root": str(material / "data"), "batch_size": 4,
                               "train_size": None, "test_size": None})  # fmt: skip
    train(images)
    return main(["report", str(material / "finished"), "--output", str(material / "report.html")])


def picture(number: int, form: str = "PNG", size: tuple[int, int] = (8, 8)) -> bytes:
    """Encode a small picture."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", size, (number * 20 % 256, 0, 255 - number * 20 % 256)).save(file, form)
    return file.getvalue()


def write_data(folder: Path) -> None:
    """Write a data set of two parquet files."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    for part, count in (("train", 12), ("test", 6)):
        pictures = [{"bytes": picture(i), "path": None} for i in range(count)]
        table = pa.table({"img": pictures, "label": [i % 3 for i in range(count)]})
        parquet.write_table(table, folder / f"{part}.parquet")
