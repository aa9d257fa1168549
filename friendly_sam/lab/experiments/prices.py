"""What a step costs: processor time, which does not mind what else the machine does.

The methods of a row take turns, a few steps each, in one process with one thread; the least
of the rounds is kept. The times of the runs themselves would compare what ran beside them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.experiments.experiment import Experiment, Scale
from friendly_sam.lab.experiments.identity import place
from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.methods import resolve

if TYPE_CHECKING:
    from friendly_sam.lab.engine import Trainer

ROUNDS = 15
STEPS = 3


def measure_prices(
    row: Experiment, scale: Scale, runs: Path, data_root: Path | None = None
) -> dict[str, float]:
    """Measure the seconds of a step of each method of a row, once; kept in a file of the row."""
    known = read_prices(runs.parent, row)
    if known:
        return known
    import torch

    from friendly_sam.lab.distributed import world
    from friendly_sam.lab.engine import Trainer

    first = {cell.method: cell.runs[0] for cell in reversed(row.cells(scale))}
    if any(run.engine.device != "cpu" for run in first.values()):
        return {}  # a GPU's time is not the processor's
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainers = {}
        for method, run in first.items():
            placed = resolve(place(run, runs, data_root))
            with world(placed.engine) as here:
                trainers[method] = Trainer(placed, here)
        seconds = dict.fromkeys(first, float("inf"))
        for turn in range(ROUNDS):
            for method, trainer in trainers.items():
                seconds[method] = min(seconds[method], _time(trainer, turn))
    finally:
        torch.set_num_threads(threads)
    write_atomically(_file(runs.parent, row), json.dumps(seconds, indent=2) + "\n")
    return seconds


def _time(trainer: Trainer, turn: int) -> float:
    """Give the processor time of a step, over a few of an epoch's first."""
    from itertools import islice

    from friendly_sam.lab.ascent import steps

    every = trainer.config.method.every
    count = -(-STEPS // every) * every  # whole rounds of steps with and without an ascent
    batches = list(islice(steps(trainer.config, trainer.streams, turn, 0), count))
    started = time.process_time()
    for own, ascent in batches:
        trainer.stepper(own, ascent, trainer.tally)
    return (time.process_time() - started) / len(batches)


def _file(folder: Path, row: Experiment) -> Path:
    return folder / f"prices-{row.name}.json"


def read_prices(folder: Path, row: Experiment) -> dict[str, float]:
    """Read the seconds of a step; empty where none were measured."""
    path = _file(folder, row)
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {str(method): float(seconds) for method, seconds in values.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise LabError(f"{path} is damaged; delete it and run the row again") from error
