"""What `test_torchrun.py` starts with torchrun: many small runs in one go.

Each is done without a stop, then again with a stop in the second epoch and a resume.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lab_runs import tiny_config

from friendly_sam.lab.training import trainer as engine
from friendly_sam.lab.training.step import TrainingStep

RUNS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp-cnn": {"model": "cnn", "data": {"flip": True, "cutout": 2}},
    "ddp-full": {"method": {"name": "sam-full"}, "engine": {"eval_batch_size": 83}},
    "ddp-noise": {"method": {"name": "sam-noise"}},
    "ddp-pieces": {"method": {"ascent_batches": 2}, "engine": {"micro_batches": 3}},
    "ddp-local": {"method": {"sync_ascent": False}},
    "fsdp": {"engine": {"parallel": "fsdp"}},
    "fsdp-cnn": {"model": "cnn", "engine": {"parallel": "fsdp"}, "base": {"name": "adamw"}},
    "fsdp-full": {
        "method": {"name": "sam-full"},
        "engine": {"parallel": "fsdp", "eval_batch_size": 83},
    },
}
"""250 images in batches of 64: shares of the last batch and of the last chunk are uneven."""


class StoppingStep(TrainingStep):
    """Interrupts every process after the same step."""

    left = 0

    def __call__(self, *arguments: Any) -> None:
        super().__call__(*arguments)
        StoppingStep.left -= 1
        if StoppingStep.left == 0:
            raise KeyboardInterrupt


def main(folder: Path) -> None:
    """Do all runs."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    for name, settings in RUNS.items():
        engine.train(tiny_config(folder / name, **settings))
        if not dist.is_initialized():
            continue
        options = {**settings.get("engine", {}), "checkpoint_steps": 2}
        config = tiny_config(folder / f"{name}-cut", **{**settings, "engine": options})
        whole, engine.TrainingStep = engine.TrainingStep, StoppingStep  # type: ignore[misc]
        StoppingStep.left = 7
        try:
            engine.train(config)
        except KeyboardInterrupt:
            pass
        finally:
            engine.TrainingStep = whole  # type: ignore[misc]
        dist.barrier()
        engine.train(config, resume=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    faulthandler.dump_traceback_later(100, exit=True)
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
