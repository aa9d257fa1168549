"""The same runs on a cluster: each is a job of submitit, which does what a local worker does.

`slurm` submits to Slurm; `local` starts the jobs as processes of this machine, with the same
code. Finished runs are not submitted, cut-off ones go on from their checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import run_state
from friendly_sam.lab.runner.pool import Outcome

MINUTES = 24 * 60
"""Time limit of a job, unless `--slurm timeout_min=...` gives another."""


def run_on_cluster(
    configs: Sequence[RunConfig], logs: Path, cluster: str, settings: Sequence[str] = ()
) -> list[Outcome]:
    """Submit runs, wait for them, return their outcomes in the same order.

    Args:
        configs: the runs, each with a folder of its own that all machines can write to.
        logs: folder of submitit's own files.
        cluster: `slurm` or `local`.
        settings: `key=value` for submitit's executor, e.g. `slurm_partition=gpu`; a key
            without a prefix that submitit does not know by itself gets `slurm_`.
    """
    try:
        import submitit  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise LabError("--cluster needs submitit: pip install submitit") from error
    runs = [resolve(config) for config in configs]
    todo = [run for run in runs if run_state(Path(str(run.output))) != "finished"]
    done = counted(len(runs) - len(todo), "run")
    print(f"{done} finished already, submitting {len(todo)} to {cluster}")
    try:
        executor = submitit.AutoExecutor(folder=str(logs / "%j"), cluster=cluster)
        executor.update_parameters(**({"timeout_min": MINUTES} | _settings(settings)))
        jobs = dict(zip(todo, executor.map_array(job, todo), strict=True)) if todo else {}
    except Exception as failure:  # submitit raises many kinds: no sbatch, unknown settings, ...
        raise LabError(f"cannot submit to {cluster}: {' '.join(str(failure).split())}") from failure
    outcomes = []
    for number, run in enumerate(runs, start=1):
        reason = _wait(jobs[run]) if run in jobs else None
        outcomes.append(Outcome(config=run, error=reason))
        result = "done" if reason is None else f"FAILED: {reason}"
        print(f"[{number}/{len(runs)}] {Path(str(run.output)).name}: {result}", flush=True)
    return outcomes


def job(config: RunConfig) -> None:
    """Do one run: the body of a job."""
    from friendly_sam.lab.training.trainer import train

    train(config, resume=True)


def _wait(job: Any) -> str | None:
    try:
        job.result()
    except Exception as error:
        return _reason(str(error)) or type(error).__name__
    return None


def _reason(text: str) -> str:
    """Find the error in submitit's message: the last line of the trace between its rules."""
    trace = text.split("--------------------")[1:-1]
    lines = [line for line in "\n".join(trace or [text]).splitlines() if line.strip(" -")]
    return " ".join(lines[-1].split()) if lines else ""


_GENERAL = ("timeout_min", "nodes", "gpus_per_node", "cpus_per_task", "mem_gb", "name")


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read `key=value` pairs."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise LabError(f"--slurm takes KEY=VALUE, got {pair!r}")
        known = key in _GENERAL or key.startswith(("slurm_", "local_"))
        name = key if known else f"slurm_{key}"
        settings[name] = int(value) if value.isdigit() else value
    return settings
