"""A process that has imported everything, and the runs and data that bad inputs are made from."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import torch
from lab_runs import tiny_config

from friendly_sam.lab.cli import main
from friendly_sam.lab.cli.dispatch import COMMANDS
from friendly_sam.lab.config.yaml import from_yaml


def warm_up(folder: Path) -> Path:
    """Import what commands import, and write a run that is cut off, one that is not, and data.

    A child does the training: autograd does not survive a fork.
    """
    import datasets
    import matplotlib.figure
    import pyarrow.parquet
    import sklearn.datasets

    del matplotlib, pyarrow, sklearn
    datasets.config.HF_DATASETS_CACHE = folder / "cache"
    for name in COMMANDS:
        __import__(f"friendly_sam.lab.cli.{name.replace('-', '_')}")
    __import__("friendly_sam.lab.training.trainer")
    __import__("friendly_sam.lab.sharpness.page")
    material = folder / "material"
    material.mkdir()
    if os.fork() == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            code = _make(material)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    write_data(material / "data")
    from_yaml(material / "cut" / "config.yaml")  # the parser of configs is made once
    sys.stdout.flush()
    return material


class _Cut:
    def step(self, epoch: int, batch: int, batches: int) -> None:
        if (epoch, batch) == (2, 2):
            raise KeyboardInterrupt

    def epoch(self, metrics: dict[str, float]) -> None:
        pass


def _make(material: Path) -> int:
    from friendly_sam.lab.training.trainer import train

    config = tiny_config(material / "finished", method={"name": "fsam"}, epochs=2,
                         data={"train_size": 64, "test_size": 40, "batch_size": 32})  # fmt: skip
    train(config)
    arguments = ["sharpness", str(material / "finished"), "--images", "20", "--grid", "3"]
    if main([*arguments, "--output", str(material / "page.html")]):
        return 1
    cut = tiny_config(material / "cut", method={"name": "fsam"}, epochs=2,
                      data={"train_size": 96, "test_size": 40, "batch_size": 32},
                      engine={"checkpoint_steps": 1})  # fmt: skip
    try:
        train(cut, listener=_Cut())
    except KeyboardInterrupt:
        return 0
    return 1


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
