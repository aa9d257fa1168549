"""Memory that a run will need, held against what there is, before any of it is taken."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from friendly_sam.lab.errors import LabError

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

COPIES = 4
"""Of the weights: themselves, gradients, the base optimizer's state, w while it is perturbed."""
FLOAT = 4
"""Bytes."""


def available() -> int | None:
    """Return the bytes this process may still take; `None` where the system does not say."""
    found = [free for free in (_of_machine(), _of_group(), _of_limit()) if free is not None]
    return max(0, min(found)) if found else None


def total() -> int | None:
    """Return the bytes of memory that the machine has; `None` where the system does not say."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def fits(need: int, *, share: float = 1.0) -> bool:
    """Whether so many bytes are free, or the system does not say."""
    free = available()
    return free is None or need <= share * free


def require(need: int, what: str, advice: str, *, share: float = 1.0) -> None:
    """Refuse what will not fit, with the estimate.

    Args:
        need: bytes, estimated.
        what: what takes them, such as "1,797 images of 4000x4000 in memory".
        advice: what to change.
        share: of what is free that it may take; training needs some too.
    """
    if not fits(need, share=share):
        free = size(available() or 0)
        raise LabError(f"{what} would take {size(need)}, and {free} are free: {advice}")


def size(count: float) -> str:
    """Return a number of bytes in words."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def _of_machine() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return total()


def _of_group() -> int | None:
    for most, used in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            return int(Path(most).read_text()) - int(Path(used).read_text())
    return None


def _of_limit() -> int | None:
    """Return what `ulimit -v` leaves."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            return limit - pages * resource.getpagesize()
    return None
