"""A run whose images changed while it was cut off does not go on with the others."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from lab_runs import Tiny
from PIL import Image

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.training.trainer import train


def picture(grey: int) -> bytes:
    """Encode a grey image."""
    file = io.BytesIO()
    Image.new("L", (8, 8), grey).save(file, "PNG")
    return file.getvalue()


class Stop:
    def step(self, epoch: int, batch: int, batches: int) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    def epoch(self, metrics: dict[str, float]) -> None:
        pass


def test_a_run_cut_off_refuses_other_images_and_goes_on_with_its_own(
    tiny: Tiny, tmp_path: Path
) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(10):
            (tmp_path / "data" / name / f"{number}.png").write_bytes(picture(number))
    data = {"name": "mine", "root": str(tmp_path / "data"), "batch_size": 4}
    config = tiny(data={**data, "train_size": None, "test_size": None})
    with pytest.raises(KeyboardInterrupt):
        train(config, listener=Stop())
    changed = tmp_path / "data" / "dog" / "3.png"
    changed.write_bytes(picture(30))
    with pytest.raises(LabError, match="are not those that this run began with"):
        train(config, resume=True)
    changed.write_bytes(picture(3))
    assert read_run(train(config, resume=True)).finished
