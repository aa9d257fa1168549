"""Studies of Optuna: one search each, kept in a journal that several processes share."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import check_writable, open_to_append, try_lock
from friendly_sam.lab.reading import regular_size
from friendly_sam.lab.search.space import Choice, Range, Settings, Space, distributions, optuna

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

JOURNAL = "studies.journal"
"""Optuna's journal beside the runs; `optuna-dashboard` opens it."""
LARGEST_JOURNAL = 64 << 20
"""Bytes: some ten thousand trials."""
START = b'{"op_code":'
"""How a line of a journal begins."""
Scored = tuple[Settings, float]
"""Settings, and how good they are."""


def open_study(path: Path, name: str) -> Study:
    """Return a study of a journal, made if it is not there; higher values are better."""
    package = optuna()
    check_writable(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    open_to_append(path).close()  # refuses a link
    if regular_size(path) > LARGEST_JOURNAL:  # Optuna reads it line by line, however long a line is
        raise damaged(path)
    lock = _Lock(path.with_name(f"{path.name}.lock"))
    _drop_unfinished_line(path, lock)
    backend = package.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
    try:
        storage = package.storages.JournalStorage(backend)
        found: Study = package.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True
        )
    except (LabError, OSError):
        raise
    except Exception as error:  # whatever Optuna makes of a line that it did not write
        raise damaged(path) from error
    return found


def _drop_unfinished_line(path: Path, lock: _Lock) -> None:
    """Cut what a process wrote of its last line when it died; its trial is done again."""
    lock.acquire()
    try:
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end == len(content):
            return
        if not end and not content.startswith(START[: len(content)]):
            raise damaged(path)  # somebody else's
        with open_to_append(path) as file:
            file.truncate(end)
    finally:
        lock.release()


def damaged(path: Path) -> LabError:
    """Return the error of a journal that holds no search of ours."""
    return LabError(f"{path} is damaged: delete it, or choose another folder")


class _Lock:
    """Lock of a journal that the system frees when the process ends, however.

    Optuna's own stays behind after a kill, and whoever comes next waits half a minute for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def acquire(self) -> bool:
        """Wait until no other process has it."""
        self.file = open_to_append(self.path)
        while not try_lock(self.file):
            time.sleep(0.01)
        return True

    def release(self) -> None:
        """Let others have it."""
        self.file.close()


def create_trial(
    space: Space, settings: Settings, value: float | None, error: str = ""
) -> FrozenTrial:
    """Return a trial that has ended; without a value it failed."""
    package, states = optuna(), optuna().trial.TrialState
    made: FrozenTrial = package.trial.create_trial(
        params=settings,
        distributions=distributions(_covering(space, [settings])),
        value=value,
        state=states.FAIL if value is None else states.COMPLETE,
        user_attrs={"settings": json.dumps(settings), "error": error},
    )
    return made


def _add(study: Study, space: Space, trials: Sequence[Scored]) -> None:
    wide = _covering(space, [settings for settings, _ in trials])
    for settings, value in trials:
        study.add_trial(create_trial(wide, settings, value))


def _covering(space: Space, trials: Sequence[Settings]) -> Space:
    """Return a space that holds the trials, also those past its edge."""
    wide: dict[str, Range | Choice] = {}
    for name, found in space.items():
        if isinstance(found, Range):
            values = [float(settings[name]) for settings in trials]
            low, high = min([found.low, *values]), max([found.high, *values])
            wide[name] = replace(found, low=low, high=high)
        else:
            wide[name] = found
    return wide


def importance(space: Space, trials: Sequence[Scored]) -> dict[str, float]:
    """Return the share of each setting in how trials differ (fANOVA); empty for too few."""
    if len(trials) < 4 or len({value for _, value in trials}) < 2:
        return {}
    package = optuna()
    study = package.create_study(direction="maximize")
    _add(study, space, trials)
    evaluator = package.importance.FanovaImportanceEvaluator(seed=0)
    found = package.importance.get_param_importances(study, evaluator=evaluator)
    return {name: round(float(found[name]), 3) for name in space if name in found}


def write_journal(path: Path, studies: Mapping[str, Sequence[Scored]]) -> None:
    """Write finished searches as studies of one journal, in the place of an older one."""
    path.unlink(missing_ok=True)
    for name, trials in studies.items():
        if trials:
            _add(open_study(path, name), _spanned(trials), trials)


def _spanned(trials: Sequence[Scored]) -> Space:
    """Return the space that trials lie in."""
    spanned: dict[str, Range | Choice] = {}
    for name in trials[0][0]:
        values = sorted({settings[name] for settings, _ in trials}, key=str)
        whole = all(type(value) is int for value in values)
        numbers = [value for value in values if isinstance(value, float) or whole]
        wide = len(numbers) == len(values) > 1
        spanned[name] = (
            Range(min(map(float, numbers)), max(map(float, numbers)), whole=whole)
            if wide
            else Choice(tuple(values))
        )
    return spanned
