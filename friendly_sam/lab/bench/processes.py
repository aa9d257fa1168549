"""A step under DistributedDataParallel: SGD and F-SAM with one process and with two, by gloo.

Every process has one thread and the same number of images, so the work of a process does not
change with their number: what grows is the price of agreeing on gradients.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from friendly_sam import FriendlySAM
from friendly_sam.lab.bench.peers import RHO
from friendly_sam.lab.bench.step import Task
from friendly_sam.lab.bench.timing import take_turns, timed
from friendly_sam.lab.counting import counted
from friendly_sam.lab.statistics import ratio, spread

NAMES = ("SGD", "F-SAM", "F-SAM, sync_ascent=False")


def measure_processes(
    *,
    rounds: int,
    counts: tuple[int, ...] = (1, 2),
    batch: int = 64,
    size: int = 32,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure steps with each number of processes; return what the JSON holds."""
    found: dict[str, Any] = {}
    for count in counts:
        progress(f"scaling: {counted(count, 'process')} by gloo")
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(  # type: ignore[attr-defined,no-untyped-call]
                work, (count, folder, rounds, batch, size), nprocs=count
            )
            found[str(count)] = json.loads((Path(folder) / "times.json").read_text())
    return {"batch": batch, "size": size, "rounds": rounds, "rows": found}


def work(rank: int, count: int, folder: str, rounds: int, batch: int, size: int) -> None:
    """Take turns with the methods, in step with the other processes."""
    import warnings

    from friendly_sam.lab.models import build

    warnings.simplefilter("ignore")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count
    )
    turns = {}
    for name in NAMES:
        torch.manual_seed(0)
        model = DistributedDataParallel(build("resnet8", classes=10, image_size=size))
        torch.manual_seed(rank)
        task = Task(model, torch.randn(batch, 3, size, size), torch.randint(10, (batch,)))
        turns[name] = timed(_step(name, task, model), time.perf_counter)
    times = take_turns(turns, rounds=rounds, warm_up=2)
    if rank == 0:
        rows = {
            name: {
                "seconds": spread(values).as_dict(),
                "against SGD": ratio(values, times["SGD"]).as_dict(),
            }
            for name, values in times.items()
        }
        (Path(folder) / "times.json").write_text(json.dumps(rows))
    dist.barrier()
    # A gloo thread may outlive the interpreter's end and abort a process whose work is done.
    sys.stdout.flush()
    os._exit(0)


def _step(name: str, task: Task, model: nn.Module) -> Callable[[], Any]:
    if name == "SGD":

        def step() -> None:
            dist.barrier()
            task.base.zero_grad()
            task.closure()
            task.base.step()

        return step
    optimizer = FriendlySAM(task.base, RHO, model=model, sync_ascent=name == "F-SAM")

    def ascend_and_step() -> None:
        dist.barrier()
        optimizer.step(task.closure)

    return ascend_and_step
