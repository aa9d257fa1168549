"""Who may write to a run's folder: the lock comes first, the look at what is there under it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from friendly_sam.lab.config.identity import difference
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import from_yaml
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import (
    DRAFT,
    check_writable,
    delete,
    open_to_append,
    refuse_link,
    try_lock,
)
from friendly_sam.lab.reading import open_regular
from friendly_sam.lab.records.run import State, is_run, run_state

LOCK = ".fsam-lock"
"""The first file of a run's folder: the lock, and the mark that the folder is ours."""
RECORDS = (
    "status.json", "config.yaml", "environment.json", "metrics.jsonl", "checkpoints", "tensorboard",
    "sharpness.json", "landscape.json", "inputs.json",
)  # fmt: skip
"""All that the lab writes into a run's folder; without the first, a run is not finished."""


@contextlib.contextmanager
def claimed(folder: Path, *, replace: bool = False) -> Iterator[None]:
    """Keep other processes from writing to a run's folder, which is made where it is missing.

    A folder with files of somebody else is refused, and with `replace` every one that does not
    carry our mark. Where nothing but the lock is left in the end, the folder goes too.
    """
    refuse_link(folder)
    check_writable(folder)
    if _begun(folder) and not is_marked(folder) and (replace or not is_run(folder)):
        raise LabError(f"output folder {folder} is not empty and holds no run")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with open_to_append(folder / LOCK) as lock:
        if not try_lock(lock):
            raise LabError(f"another process is writing to {folder}")
        try:
            yield
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK]:
                delete(folder / LOCK)
                with contextlib.suppress(OSError):
                    for path in made or [folder]:
                        path.rmdir()


def is_marked(folder: Path) -> bool:
    """Whether a folder carries the mark of a run."""
    return (folder / LOCK).is_file()


def holds_run(folder: Path) -> bool:
    """Whether there is a run in a folder, be it only begun."""
    return _begun(folder) and (is_marked(folder) or is_run(folder))


def _begun(folder: Path) -> bool:
    """Whether a folder holds more than the lock and drafts."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return any(name != LOCK and not name.startswith(DRAFT) for name in names)


def look(folder: Path, config: RunConfig, *, resume: bool) -> State | None:
    """Return the state of the run in a claimed folder; refuse one that this run must not touch."""
    state = run_state(folder)
    if not resume and _begun(folder):
        what = "a finished run" if state == "finished" else "an unfinished run (--resume goes on)"
        with contextlib.suppress(LabError):  # a damaged file: it can still be replaced
            other = _other_settings(folder, config)
            what = what if other is None else f"another run ({other})"
        raise LabError(
            f"output folder {folder} already holds {what}; choose another --output, "
            "or --overwrite to replace it"
        )
    other = _other_settings(folder, config)
    if other is not None:
        raise LabError(f"output folder {folder} holds another run: {other}")
    return state


def _other_settings(folder: Path, config: RunConfig) -> str | None:
    """Name the first setting in which the run in a folder is another one."""
    path = folder / "config.yaml"
    return difference(from_yaml(path), config) if path.is_file() else None


def clear(folder: Path) -> None:
    """Delete the records of the run in a claimed folder, and nothing that is not ours."""
    for name in RECORDS:
        delete(folder / name)


def is_being_written(folder: Path) -> bool:
    """Whether a process holds the lock of a run's folder: a run without one has stopped."""
    try:
        with open_regular(folder / LOCK) as lock:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, LabError, ImportError):
        pass
    return False
