"""One process or many: who this one is, how the network is spread, how sums are made.

`torchrun` sets RANK, WORLD_SIZE and LOCAL_RANK; without them there is one process and
nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from friendly_sam.lab import torchrun
from friendly_sam.lab.config.schema import EngineConfig
from friendly_sam.lab.errors import LabError


@dataclass(frozen=True, kw_only=True)
class World:
    """Where this process stands among its peers."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the records."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add up a tensor over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Collect a value from every process, in all of them."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def share(self, value: Any) -> Any:
        """Return every process the value of the leading one."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]


def choose_device(name: str) -> torch.device:
    """Turn a name into a device; `auto` takes cuda, then mps, then the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torchrun.local_rank())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # `meta` has no values
    except Exception as error:  # each kind of device raises its own
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LabError(f"engine.device={name} cannot be used: {reason}") from error
    return device


@contextmanager
def world(config: EngineConfig) -> Iterator[World]:
    """Join the processes that `torchrun` started, and leave them in the end.

    A process group that exists already is used and left alone.
    """
    device = choose_device(config.device)
    if torchrun.world_size() == 1:
        yield World(device=device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    joined = not dist.is_initialized()
    if joined:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(device=device, rank=dist.get_rank(), size=dist.get_world_size())
    finally:
        if joined:
            dist.destroy_process_group()


def spread(model: nn.Module, config: EngineConfig, here: World) -> nn.Module:
    """Replicate (DDP) or shard (FSDP2) a network over the processes.

    FSDP2 changes the network in place; each child with parameters is a unit of its own, so
    that one at a time is gathered.
    """
    if here.size == 1:
        return model
    if config.parallel == "ddp":
        devices = [here.device] if here.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(here.device.type, (here.size,))
    for child in model.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def unreduced(model: nn.Module) -> AbstractContextManager[None]:
    """Keep gradients from being summed over processes: more micro-batches follow."""
    if isinstance(model, DistributedDataParallel):
        return model.no_sync()
    return nullcontext()


@torch.no_grad()
def share_buffers(model: nn.Module, here: World) -> None:
    """Return every process the leading one's buffers (BatchNorm's running statistics)."""
    if here.size > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
