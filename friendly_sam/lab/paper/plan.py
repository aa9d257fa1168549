"""What is to be done: the runs of experiments, each once, in an order that works."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from friendly_sam.lab.config.identity import identity
from friendly_sam.lab.config.resolve import passes
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.experiment import Experiment, Scale
from friendly_sam.lab.paper.run_folders import needs, place
from friendly_sam.lab.records.run import read_run, run_state


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Runs to do in two stages: those that leave weights for others, then the others."""

    first: tuple[RunConfig, ...]
    then: tuple[RunConfig, ...]
    done: int
    """Runs that are finished already."""
    damaged: tuple[str, ...]
    """Runs whose records cannot be read, with the reason; they are left alone."""

    def __len__(self) -> int:
        return len(self.first) + len(self.then) + self.done + len(self.damaged)


def plan(
    experiments: Sequence[Experiment],
    scale: Scale,
    runs: Path,
    *,
    data_root: Path | None = None,
    seeds: int | None = None,
) -> Plan:
    """Gather the runs of experiments, each once, and assign their folders below `runs`."""
    wanted = {
        identity(run): run for experiment in experiments for run in experiment.runs(scale, seeds)
    }
    leaders = {leader for run in wanted.values() if (leader := needs(run)) is not None}
    first: list[RunConfig] = []
    then: list[RunConfig] = []
    damaged: list[str] = []
    done = 0
    for name, run in wanted.items():
        placed = place(run, runs, data_root)
        try:
            finished = _finished(placed)
        except LabError as error:
            damaged.append(str(error))
            continue
        if finished:
            done += 1
        else:
            (first if name in leaders else then).append(placed)
    return Plan(first=tuple(first), then=tuple(then), done=done, damaged=tuple(damaged))


def _finished(run: RunConfig) -> bool:
    """Whether a run is finished; its folder's name says that it is this run."""
    folder = Path(str(run.output))
    return run_state(folder) is not None and read_run(folder, run).finished


SECONDS = {
    "mlp": 4e-5,
    "efficientnet_lite0": 7e-4,
    "cnn": 9e-5,
    "resnet8s2": 2e-4,
    "vgg8_bn": 1e-3,
    "vgg16_bn": 8e-5,
    "resnet18": 1.2e-4,
    "wrn28_10": 9e-4,
    "pyramidnet110": 1.4e-3,
    "resnet50": 1.2e-3,
    "hf:facebook/deit-small-patch16-224": 1.2e-3,
}
"""Forward and backward of one image: on one core for the small networks, as measured; on a
current data-centre GPU for the paper's, a guess from their published throughput."""

TESTS = {"cifar10": 10_000, "cifar100": 10_000, "imagenet": 50_000}
SIZES = {"digits": 1_000, "imagenet": 1_281_167, "cars": 8144, "pets": 3680, "flowers": 7169}


def seconds(run: RunConfig) -> float:
    """Estimate what a run takes: its passes over its images, and a start-up."""
    images = run.data.train_size or SIZES.get(run.data.name, 50_000)
    test = (run.data.test_size or TESTS.get(run.data.name, 800)) * run.engine.eval_test
    held_out = (test + run.data.validation_size) * -(-run.epochs // run.engine.eval_epochs)
    a_pass = SECONDS.get(run.model.name, 1e-3)
    return 0.3 + (run.epochs * passes(run) * images + held_out / 3) * a_pass


def estimate(runs: Iterable[RunConfig], workers: int) -> float:
    """Estimate the seconds that runs take, shared out among workers."""
    return sum(seconds(run) for run in runs) / max(1, workers)
