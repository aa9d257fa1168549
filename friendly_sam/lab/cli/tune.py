"""`fsam tune`: search for learning rate, weight decay, radius or any setting on validation images.

Three fifths of the trials are spread over the ranges, the others lie around the best of them. The
same command in a second terminal, or on a second machine that shares the folder, takes part in the
search; after a kill it goes on. It ends with the command that trains with what was found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from friendly_sam.lab.cli.parser import Parser, whole
from friendly_sam.lab.cli.run_settings import settings
from friendly_sam.lab.config.bounds import MOST_SEEDS
from friendly_sam.lab.config.identity import identity
from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.settings import Setting, as_trial, changed, value
from friendly_sam.lab.config.yaml import from_dict, to_dict
from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.report.tables import Table, plain_table
from friendly_sam.lab.search.space import Choice, Range, Settings, Space, points
from friendly_sam.lab.search.tune import Tuned, tune

TRIALS, SEEDS = 10, 2
_DESCRIPTION = f"""\
Search for learning rate, weight decay, radius or any other setting on validation images.

{(__doc__ or "").partition(chr(10))[2].strip()}

  --trials N               points that are tried (default {TRIALS})
  --seeds N                runs of each point (default {SEEDS})
  --search NAME=LOW:HIGH   what is searched, or NAME=A,B,... (default: learning rate, weight
                           decay and radius, around the run's own)
"""
MOST_TRIALS = 10_000
FIRST_SEED = 1000
"""Seeds of the search: fresh ones report what was chosen."""
REACH = {"base.lr": 4.0, "base.weight_decay": 10.0, "method.rho": 4.0}
"""Unless told otherwise, a setting is searched from its value divided by this to times this."""
LEAST = {"base.weight_decay": 5e-4, "method.rho": 0.05}
"""The middle of the range of a setting that is 0."""


OWN = ("seed", "output")
"""Settings that a search has no choice of."""


def default_space(config: RunConfig) -> Space:
    """Return the ranges around a run's own settings; the radius where its method has one."""
    found: dict[str, Range | Choice] = {}
    for name, reach in REACH.items():
        if name == "method.rho" and METHODS[config.method.name].rho is None:
            continue
        middle = float(value(resolve(config), name) or LEAST[name])
        found[name] = Range(middle / reach, middle * reach)
    return found


def read_space(words: Sequence[str], config: RunConfig) -> Space:
    """Read `NAME=LOW:HIGH` and `NAME=A,B,...`; a setting of whole numbers gets whole numbers."""
    found: dict[str, Range | Choice] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not text:
            raise LabError(f"--search takes NAME=LOW:HIGH or NAME=A,B,..., got {word!r}")
        if name in found:
            raise LabError(f"--search {word}: {name} is named twice")
        try:
            if dataclasses.is_dataclass(value(config, name)):
                raise LabError(f"{name} is a group of settings, name one of them")
            if name in OWN:
                raise LabError(f"{name} is set by the search itself")
            ends = text.split(":")
            among = "," in text or len(ends) == 1
            if len(ends) > 2 and not among:
                raise LabError(f"a range has two ends, got {len(ends)}")
            found[name] = _choice(config, name, text) if among else _range(config, name, *ends)
        except LabError as error:
            raise LabError(f"--search {word}: {error}") from error
    return found


def _choice(config: RunConfig, name: str, text: str) -> Choice:
    options = tuple(dict.fromkeys(_typed(config, name, part) for part in text.split(",")))
    if not all(isinstance(option, Setting) for option in options):
        raise LabError(f"{name} cannot be searched for")
    return Choice(options)


def _range(config: RunConfig, name: str, *ends: str) -> Range:
    low, high = (_number(config, name, end) for end in ends)
    found = Range(low, high, whole=isinstance(low, int) and isinstance(high, int))
    if not _accepts(config, name, found.around(low).low):
        found = replace(found, least=low)
    if not _accepts(config, name, found.around(high).high):
        found = replace(found, most=high)
    return found


def _number(config: RunConfig, name: str, text: str) -> float:
    found = _typed(config, name, text)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise LabError(f"{text!r} is not a number, and a range needs two")
    return found


def _typed(config: RunConfig, name: str, text: str) -> Setting:
    """Return a value as the setting has it; what a run would refuse is refused here."""
    for kind in (int, float, yaml.safe_load):
        with contextlib.suppress(ValueError, yaml.YAMLError):
            return _accept(config, name, kind(text))
    raise LabError(f"{text!r} is not a value")


def _accept(config: RunConfig, name: str, new: object) -> Setting:
    settings = to_dict(config)
    group, dot, field = name.partition(".")
    if dot:
        settings[group][field] = new
    else:
        settings[group] = new
    try:
        run = from_dict(settings, "")
        resolve(run)
    except (LabError, ValueError, TypeError) as error:
        raise LabError(str(error).removeprefix(": ")) from error
    found: Setting = value(run, name)
    return found


def _accepts(config: RunConfig, name: str, new: Setting) -> bool:
    try:
        _accept(config, name, new)
    except LabError:
        return False
    return True


def tune_run(config: RunConfig, space: Space, folder: Path, *, trials: int, seeds: int) -> Tuned:
    """Search on the validation images of a run; its trials are runs in the folder."""
    if config.data.validation_size == 0:
        raise LabError(
            "data.validation_size is 0: settings are chosen on validation images, so set some "
            "aside, for example --data.validation_size 500"
        )
    from friendly_sam.lab.training.streams import load_data
    from friendly_sam.lab.training.trainer import train

    def objective(point: Settings) -> float:
        name = "-".join(f"{key.rpartition('.')[2]}{new}" for key, new in point.items())
        scores = []
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            output = str(folder / "runs" / f"{name}-seed{seed}")
            run = resolve(replace(as_trial(changed(config, point)), seed=seed, output=output))
            found = read_run(train(run, resume=True))
            scores.append(found.final("validation_accuracy"))
        print(f"{name}: validation {statistics.fmean(scores):.2f} %", flush=True)
        return statistics.fmean(scores)

    # The run with any point of the space stands for all of them: the space itself is compared too.
    one = replace(as_trial(changed(config, points(space, 1)[0])), seed=FIRST_SEED, output=None)
    load_data(resolve(one))  # what is missing or too small is said before the first trial
    root = "" if one.data.root is None else f", {Path(one.data.root).resolve()}"
    subject = f"{identity(one)}, {counted(seeds, 'seed')}{root}"
    return tune(objective, space, trials=trials, folder=folder, subject=subject)


def report(found: Tuned, space: Space, command: str) -> str:
    """Return the search as text, ending with the command line to use."""
    rows = [
        [
            str(number),
            *[_show(trial.settings[name]) for name in space],
            "failed" if trial.value is None else f"{trial.value:.2f}",
            "chosen" if trial == found.best else "",
        ]
        for number, trial in enumerate(found.trials, start=1)
    ]
    text = plain_table(Table(header=["trial", *space, "validation, %", ""], rows=rows))
    if found.importance:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in found.importance.items())
        text += f"\n\nHow much each setting mattered (fANOVA): {shares}."
    for name in found.edge:
        text += f"\n{name} {_show(found.best.settings[name])} is at the edge of what was tried: "
        text += "widen its range with --search."
    options = " ".join(f"--{name} {_show(new)}" for name, new in found.best.settings.items())
    return f"{text}\n\nTrain with it on seeds of its own:\n  {command} {options}"


def _show(new: Setting) -> str:
    return f"{new:g}" if isinstance(new, float) else str(new)


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    first = Parser(prog="fsam tune", add_help=False, allow_abbrev=False)
    first.add_argument("--trials", type=whole(2, MOST_TRIALS), default=TRIALS)
    first.add_argument("--seeds", type=whole(1, MOST_SEEDS), default=SEEDS)
    first.add_argument("--search", nargs="+", action="extend", default=[])
    options, rest = first.parse_known_args(list(arguments))
    config = settings(
        rest,
        own=("--trials", "--seeds", "--search"),
        prog="fsam tune",
        usage="fsam tune [--preset NAME] [--config FILE] [--trials N] [--seeds N]\n"
        "                 [--search NAME=LOW:HIGH ...] [--SETTING VALUE ...]",
        description=_DESCRIPTION,
        epilog="examples:\n  fsam tune --preset digits-mlp-fsam --data.train_size 800 "
        "--data.validation_size 200\n"
        "  fsam tune --config mine.yaml --search method.rho=0.05:0.4 --trials 5",
    )
    space = read_space(options.search, config) or default_space(config)
    folder = Path(config.output or "runs/tune")
    found = tune_run(config, space, folder, trials=options.trials, seeds=options.seeds)
    if len(found.trials) < options.trials:
        print(f"\nNo more than {counted(len(found.trials), 'point')} to try there.")
    command = shlex.join(["fsam", "train", *_elsewhere(rest, config)])
    print(f"\n{report(found, space, command)}")
    return 0


def _elsewhere(words: Sequence[str], config: RunConfig) -> list[str]:
    """Return the words of a command without the search's own folder."""
    kept = list[str]()
    for number, word in enumerate(words):
        if word.partition("=")[0] != "--output" and words[max(number - 1, 0)] != "--output":
            kept.append(word)
    if config.output is not None and len(kept) == len(words):  # a file names it
        kept += ["--output", f"{config.output}/chosen"]
    return kept
