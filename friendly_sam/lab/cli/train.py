"""`fsam train`: train one run, or go on with one."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from friendly_sam.lab import torchrun
from friendly_sam.lab.cli.parser import Parser
from friendly_sam.lab.cli.run_settings import settings
from friendly_sam.lab.config.presets import needs_gpu
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.claim import holds_run
from friendly_sam.lab.records.run import Run, read_run

GUESS = 0.98
"""Share of the loss of a guess that a network which learned something stays below."""

_USAGE = (
    "fsam train [--preset NAME] [--config FILE] [--resume | --overwrite]\n"
    "                  [--track wandb|mlflow] [--SETTING VALUE ...]"
)

_DESCRIPTION = """\
Train a network and keep the records in a folder.

--preset NAME starts from a preset of `fsam list presets`, --config FILE from a YAML file;
settings named below override both. --resume goes on with the run in --output, bit for bit;
without a preset or a file, the settings are those of that run. --overwrite replaces the run in
--output. --track wandb or mlflow logs the metrics there too, the norm of the perturbation and the
loss at w + eps among them.
"""

_EXAMPLE = """\
examples:
  fsam train --preset digits-mlp-fsam
  fsam train --preset cifar10-resnet18-fsam --data.root ~/cifar10 --seed 1 --output runs/first
  fsam train --resume --output runs/first
  torchrun --nproc-per-node 2 -m friendly_sam.lab train --preset cifar10-resnet18-fsam
"""


def run(arguments: Sequence[str]) -> int:
    """Train one run, or go on with one."""
    first = Parser(prog="fsam train", add_help=False, allow_abbrev=False)
    either = first.add_mutually_exclusive_group()
    either.add_argument("--resume", action="store_true")
    either.add_argument("--overwrite", action="store_true")
    first.add_argument("--track", action="append", default=[], choices=("wandb", "mlflow"))
    options, rest = first.parse_known_args(list(arguments))
    config = resolve(
        settings(
            rest,
            own=("--resume", "--overwrite", "--track"),
            resume=options.resume,
            prog="fsam train",
            usage=_USAGE,
            description=_DESCRIPTION,
            epilog=_EXAMPLE,
        )
    )
    if options.resume and not holds_run(Path(str(config.output))):
        raise LabError(f"--resume: there is no run in {config.output}")
    if torchrun.rank() == 0:
        _warn_without_gpu(rest, config)
    from friendly_sam.lab.runner.progress import RunProgress
    from friendly_sam.lab.runner.trackers import Listeners, TrackedRun
    from friendly_sam.lab.training.trainer import train

    with TrackedRun(config, options.track) as tracked, RunProgress(config) as progress:
        folder = train(
            config,
            resume=options.resume,
            overwrite=options.overwrite,
            listener=Listeners(progress, tracked),
        )
    if torchrun.rank() == 0:
        print(_closing(folder, listed=progress.announced))
    return 0


def _warn_without_gpu(arguments: Sequence[str], config: RunConfig) -> None:
    """Say at once that a preset is meant for a GPU; an estimate comes after the first steps."""
    from friendly_sam.lab.training.distributed import choose_device

    parser = Parser(prog="fsam train", add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="")
    name = parser.parse_known_args(list(arguments))[0].preset
    if needs_gpu(name) and choose_device(config.engine.device).type == "cpu":
        print(
            f"warning: {name} is meant for a GPU and runs on the CPU here; after some steps a "
            "line says how long it will take",
            file=sys.stderr,
            flush=True,
        )


def _closing(folder: Path, *, listed: bool) -> str:
    """Say what a finished run came to, and what to look at next."""
    run = read_run(folder)
    word = "finished" if listed else "was finished already"
    accuracy = f"test {run.final('test_accuracy'):.2f} %" if run.series("test_accuracy") else ""
    lines = [f"{word}: {folder}  {accuracy}".rstrip()]
    if _did_not_learn(run):
        radius = run.config.method.rho
        lines.append(
            "it did not learn: its training loss is that of a guess; try another learning rate"
            + (f", or a radius five times smaller than {radius:g}" if radius else "")
        )
    elif accuracy and run.config.engine.keep_best and not run.series("validation_accuracy"):
        lines.append(
            "the best checkpoint was chosen on the test images: hold some out with "
            "--data.validation_size for an honest choice"
        )
    return "\n".join([*lines, f"next: fsam report {folder}"])


def _did_not_learn(run: Run) -> bool:
    """Whether loss and accuracy are those of a guess: the loss is log(number of classes)."""
    from friendly_sam.lab.training.classifier import INPUTS, read_inputs

    losses, accuracies = run.series("train_loss"), run.series("test_accuracy")
    if not losses or not accuracies or not (run.folder / INPUTS).is_file():
        return False
    classes = len(read_inputs(run.folder)["classes"])
    return losses[-1] > GUESS * math.log(classes) and accuracies[-1] < 2 * 100 / classes
