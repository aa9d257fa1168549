"""What `torchrun` tells a process in its environment: how many there are, and which this one is."""

from __future__ import annotations

import os

from friendly_sam.lab.errors import LabError


def world_size() -> int:
    """Return the number of processes; 1 where `torchrun` did not start this one."""
    return _whole("WORLD_SIZE", "1", least=1)


def rank() -> int:
    """Return which process this is, from 0; a single one is 0 whatever RANK says."""
    size = world_size()
    if size == 1:
        return 0
    number = _whole("RANK", "0")
    if number >= size:
        raise LabError(f"RANK must be below WORLD_SIZE = {size}, got {number}")
    return number


def local_rank() -> int:
    """Return which process of this machine this is."""
    return _whole("LOCAL_RANK", "0") if world_size() > 1 else 0


def _whole(name: str, default: str, *, least: int = 0) -> int:
    text = os.environ.get(name, default)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least):
        raise LabError(f"{name} must be a whole number from {least} on, got {text[:40]!r}")
    return int(text)
