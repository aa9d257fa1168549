"""What a step costs: processor time, which does not mind what else the machine does.

The methods of an experiment take turns, a few steps each, in one process with one thread; the least
of the rounds is kept. The times of the runs themselves would compare what ran beside them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from friendly_sam.lab.config.methods import BASES, METHODS
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.paper.experiment import Experiment, Scale
from friendly_sam.lab.paper.run_folders import place
from friendly_sam.lab.reading import checked, read_json_object

if TYPE_CHECKING:
    from friendly_sam.lab.training.trainer import Trainer

FILE = "step-costs.json"
ROUNDS = 5
STEPS = 3


def measure_step_costs(
    experiment: Experiment, scale: Scale, runs: Path, data_root: Path | None = None
) -> None:
    """Measure a step of each contender, times that of the base optimizer; once per folder."""
    timed = _timed(experiment, scale)
    known = _read(runs.parent)
    new = {key: run for key, run in timed.items() if key not in known}
    if not new or any(run.engine.device != "cpu" for run in timed.values()):
        return  # a GPU's time is not the processor's
    bases = {_base(key): key for key in reversed(timed)}
    needed = {key: timed[key] for key in bases.values() if _base(key) in map(_base, new)}
    seconds = _measure({**needed, **new}, runs, data_root)
    known |= {key: value / seconds[bases[_base(key)]] for key, value in seconds.items()}
    write_atomically(runs.parent / FILE, json.dumps(known, indent=1) + "\n")


def _timed(experiment: Experiment, scale: Scale) -> dict[str, RunConfig]:
    """Return what is timed of each contender; the first over a base is the base alone.

    A gradient over the whole training set costs what that set's size makes of it, in every task
    something else; `passes` says it.
    """
    tuning = experiment.tuning
    if tuning is None or tuning.report is not None:
        return {}
    found: dict[str, RunConfig] = {}
    for task in tuning.tasks(scale):
        for contender in task.contenders:
            run = contender.wide()[0]
            if METHODS[run.method.name].full_gradient:
                continue
            found.setdefault(step_cost_key(run, contender.name), tuning.timed(scale, run))
    return found


def step_cost_key(run: RunConfig, name: str) -> str:
    """Name what is timed: a contender over its base optimizer."""
    return f"{BASES[run.base.name]}: {name}"


def _base(key: str) -> str:
    return key.partition(": ")[0]


def _measure(first: dict[str, RunConfig], runs: Path, data_root: Path | None) -> dict[str, float]:
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
        for turn in range(ROUNDS):
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


def _read(folder: Path) -> dict[str, float]:
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        values = read_json_object(path)
        checked(values, dict.fromkeys(values, float), str(path))
    except LabError as error:
        raise LabError(f"{error}; delete it and run the experiment again") from error
    return {method: float(ratio) for method, ratio in values.items()}


def read_step_costs(folder: Path, experiment: Experiment, scale: Scale) -> dict[str, float]:
    """Read the time of a step, times the base optimizer's, by `step_cost_key`."""
    known = _read(folder)
    return {key: known[key] for key in _timed(experiment, scale) if key in known}
