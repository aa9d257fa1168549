"""Search for the best settings of anything: the same search that the experiments use.

The study is a journal in a folder. Any number of processes, on one machine or on several that share
the folder, may call `tune` with it at the same time: each takes points that nobody has taken. A
process that dies frees its point, and whoever goes on with the folder does it again. What is chosen
depends on the settings alone: not on how many processes took part, nor on interruptions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.files import open_to_append, try_lock
from friendly_sam.lab.reading import checked, parse_json
from friendly_sam.lab.search.space import (
    Range,
    Settings,
    Space,
    around,
    at_edge,
    check_space,
    optuna,
    points,
)
from friendly_sam.lab.search.study import JOURNAL, create_trial, damaged, importance, open_study

if TYPE_CHECKING:
    from optuna import Study

NEAR_SHARE = 0.4
"""Share of the trials that lies around the best of the others."""
WAIT = 0.5
"""Seconds between looks at what other processes do."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A point that was tried."""

    settings: Settings
    value: float | None
    """How good it is; `None`: it failed."""
    error: str = ""
    """Why it failed."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a search found."""

    best: Trial
    trials: tuple[Trial, ...]
    """In the order of the points."""
    edge: tuple[str, ...]
    """Settings whose choice lies at the edge of all that was searched."""
    importance: dict[str, float]
    """Share of each setting in how the trials differ (fANOVA)."""


def tune(
    objective: Callable[[Settings], float],
    space: Space,
    *,
    trials: int,
    folder: Path | str,
    subject: str = "",
) -> Tuned:
    """Return the settings for which an objective is highest.

    Three fifths of the trials are spread over the space, the others lie around the best of them,
    also past the edge of a range, as far as its `least` and `most`. No point is tried twice, so a
    small space has fewer trials; one without a range has nothing around its best.

    A `RuntimeError`, `ValueError` or `RunError` of the objective, or a value that is not a number,
    loses the trial; anything else stops the search, which goes on when it is called again.

    Args:
        objective: from settings to a number, the higher the better.
        space: what may be chosen, by name: `Range` and `Choice`.
        trials: how many points are tried; with another number the points that are known already
            are not tried again.
        folder: where the study is kept.
        subject: what is tuned; a folder that holds a search of something else is refused.

    Example:
        >>> import tempfile
        >>> from friendly_sam.lab.search.space import Range
        >>> def objective(settings):
        ...     return -abs(settings["lr"] - 0.1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = tune(objective, {"lr": Range(0.01, 1.0)}, trials=5, folder=folder)
        >>> len(found.trials), found.best.value == max(t.value for t in found.trials)
        (5, True)
    """
    if type(trials) is not int or trials < 2:
        raise LabError(f"trials must be a whole number of at least 2, got {trials!r}")
    check_space(space)
    path = Path(folder)
    study = open_study(path / JOURNAL, "tune")
    _check(study, space, path, subject)
    ranges = any(isinstance(found, Range) for found in space.values())
    near = int(trials * NEAR_SHARE) if ranges else 0
    wide = points(space, trials - near)
    found = _do(study, path, objective, space, wide)
    centre = _best(found, path)
    close = around(space, centre.settings)
    if near:
        more = [point for point in points(close, near, seed=1) if point not in wide]
        found = _do(study, path, objective, space, [*wide, *more])
    best = _best(found, path)
    known = [(t.settings, t.value) for t in found if t.value is not None]
    return Tuned(
        best=best,
        trials=tuple(found),
        edge=tuple(at_edge(space, close if near else space, best.settings)),
        importance=importance(space, known),
    )


def _check(study: Study, space: Space, folder: Path, subject: str) -> None:
    """Refuse a folder that holds another search."""
    ranges = {name: str(found) for name, found in space.items()}
    for name, wanted, words in (
        ("space", ranges, "over other settings"),
        ("subject", subject, "of something else"),
    ):
        known = study.user_attrs.get(name)
        if known is None:
            study.set_user_attr(name, wanted)
        elif known != wanted:
            raise LabError(f"{folder} holds a search {words}: choose another folder")


def _do(
    study: Study,
    folder: Path,
    objective: Callable[[Settings], float],
    space: Space,
    wanted: list[Settings],
) -> list[Trial]:
    """Try points until all have been, by this process or another."""
    while True:
        done = _done(study, folder)
        todo = [point for point in wanted if _key(point) not in done]
        if not todo:
            return [done[_key(point)] for point in wanted]
        if not any(_take(study, folder, objective, space, point) for point in todo):
            time.sleep(WAIT)


def _key(settings: Settings) -> str:
    """Return a point as text, by which it is known again."""
    return json.dumps(settings, sort_keys=True)


def _take(
    study: Study,
    folder: Path,
    objective: Callable[[Settings], float],
    space: Space,
    settings: Settings,
) -> bool:
    """Try a point unless another process does; whether it was done here."""
    key = _key(settings)
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    with _claimed(folder / f".trial-{name}") as ours:
        if not ours or key in _done(study, folder):
            return False
        value, error = None, ""
        try:
            found = float(objective(dict(settings)))
            if math.isfinite(found):
                value = found
            else:
                error = f"its value is {found}"
        except (RuntimeError, ValueError, RunError) as failure:
            error = str(failure) or type(failure).__name__
        study.add_trial(create_trial(space, settings, value, error))
    return True


def _done(study: Study, folder: Path) -> dict[str, Trial]:
    """Return the trials that have ended, by their point."""
    ended: dict[str, Trial] = {}
    for trial in study.get_trials(deepcopy=False):
        try:
            made = checked(trial.user_attrs, {"settings": str, "error": str}, JOURNAL)
            settings = checked(parse_json(made["settings"].encode(), JOURNAL), dict, JOURNAL)
        except (LabError, ValueError) as error:  # a trial that `tune` did not make
            raise damaged(folder / JOURNAL) from error
        value = trial.value if trial.state == optuna().trial.TrialState.COMPLETE else None
        ended.setdefault(_key(settings), Trial(settings=settings, value=value, error=made["error"]))
    return ended


def _best(found: list[Trial], folder: Path) -> Trial:
    known = [trial for trial in found if trial.value is not None]
    if not known:
        reason = found[0].error or "no reason given"
        raise LabError(f"every trial of {folder} failed, the first: {reason}")
    return max(known, key=lambda trial: trial.value or 0.0)


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Claim a point for this process; the system frees it when the process ends, however."""
    with open_to_append(path) as file:
        yield try_lock(file)
