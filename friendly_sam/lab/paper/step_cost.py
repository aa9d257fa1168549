"""What a step costs: processor time, which does not mind what else the machine does.

The methods of an experiment take turns, a few steps each, in one process with one thread; the least
of the rounds is kept. The times of the runs themselves would compare what ran beside them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.experiment import Experiment, Scale
from friendly_sam.lab.paper.run_folders import place
from friendly_sam.lab.records.measured_once import measured_once

if TYPE_CHECKING:
    from friendly_sam.lab.training.trainer import Trainer

ROUNDS = 15
LARGE_ROUNDS = 5
"""Of networks that take long, where a step is nearly all passes."""
STEPS = 3


def measure_step_costs(
    experiment: Experiment, scale: Scale, runs: Path, data_root: Path | None = None
) -> dict[str, float]:
    """Measure the seconds of a step of each method of an experiment, once."""
    known = read_step_costs(runs.parent, experiment)
    first = {cell.method: cell.runs[0] for cell in reversed(experiment.cells(scale))}
    rounds = ROUNDS
    if experiment.tuning is not None:
        first = {name: experiment.tuning.timed(scale, run) for name, run in first.items()}
        rounds = LARGE_ROUNDS
    if known and known.keys() >= first.keys():
        return known
    _file(runs.parent, experiment).unlink(missing_ok=True)  # the methods are others now
    if any(run.engine.device != "cpu" for run in first.values()):
        return {}  # a GPU's time is not the processor's
    return measured_once(
        _file(runs.parent, experiment), {}, lambda: _measure(first, runs, data_root, rounds)
    )


def _measure(
    first: dict[str, RunConfig], runs: Path, data_root: Path | None, rounds: int
) -> dict[str, float]:
    import torch

    from friendly_sam.lab.training.distributed import world
    from friendly_sam.lab.training.trainer import Trainer

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainers = {}
        for method, run in first.items():
            placed = resolve(place(run, runs, data_root))
            with world(placed.engine) as here:
                trainers[method] = Trainer(placed, here)
        seconds = dict.fromkeys(first, float("inf"))
        for turn in range(rounds):
            for method, trainer in trainers.items():
                seconds[method] = min(seconds[method], _time(trainer, turn))
    finally:
        torch.set_num_threads(threads)
    return seconds


def _time(trainer: Trainer, turn: int) -> float:
    """Return the processor time of a step, over a few of an epoch's first.

    Steps with a perturbation and steps without one are timed apart, and weighed as the run does.
    """
    from itertools import islice

    from friendly_sam import Every, From, SharpnessAware
    from friendly_sam.lab.config.policies import perturbed_share
    from friendly_sam.lab.training.ascent_batches import step_batches

    def seconds() -> float:
        batches = list(islice(step_batches(trainer.config, trainer.streams, turn, 0), STEPS))
        started = time.process_time()
        for own, ascent in batches:
            trainer.take_step(own, ascent, trainer.tally)
        return (time.process_time() - started) / len(batches)

    optimizer, config = trainer.optimizer, trainer.config
    if not isinstance(optimizer, SharpnessAware):
        return seconds()
    share = perturbed_share(config.method, config.epochs * len(trainer.batches))
    optimizer.when = Every()
    perturbed = seconds()
    if share == 1:
        return perturbed
    optimizer.when = From(2**62)
    return share * perturbed + (1 - share) * seconds()


def _file(folder: Path, experiment: Experiment) -> Path:
    older = folder / f"prices-{experiment.name}.json"  # what 0.1 called it
    return older if older.is_file() else folder / f"step-cost-{experiment.name}.json"


def read_step_costs(folder: Path, experiment: Experiment) -> dict[str, float]:
    """Read the seconds of a step; empty where none were measured."""
    path = _file(folder, experiment)
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {str(method): float(seconds) for method, seconds in values.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise LabError(f"{path} is damaged; delete it and run the experiment again") from error
