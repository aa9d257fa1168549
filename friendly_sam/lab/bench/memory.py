"""Peak memory beyond the base optimizer, measured: each method in a process of its own.

The network is a chain of square layers on one input, so that parameters and what belongs to them
are all there is. Every process takes a few steps with the same base (SGD with momentum) and tells
its peak of resident memory; what a method has on top of SGD, divided by the size of the
parameters, is its number of copies. Before that, every process takes a step of each method on a
small network, so that all have the same code in memory. A large tensor is a mapping of its own
(the allocator is told so), which is given back when the tensor goes: a peak is then what is held,
not what fragments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from friendly_sam.lab.errors import RunError

SGD = "SGD"
CONTENDERS = {
    SGD: None,
    "SAM": SGD,
    "F-SAM": SGD,
    "F-SAM, m in bf16": SGD,
    "the authors' F-SAM": SGD,
    "pytorch_optimizer's F-SAM": SGD,
}
"""What is measured, and what it is measured against."""


def measure_memory(
    *,
    megabytes: int,
    methods: list[str] | None = None,
    repeats: int = 1,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure every method; return what the JSON holds."""
    chosen = methods or list(CONTENDERS)
    peaks: dict[str, list[int]] = {name: [] for name in chosen}
    absent: dict[str, str] = {}
    size = 0
    for turn in range(repeats):
        for name in chosen:
            if name in absent:
                continue
            progress(f"memory: {name}" + (f", {turn + 1} of {repeats}" if repeats > 1 else ""))
            told = in_a_process(name, megabytes)
            if "absent" in told:
                absent[name] = told["absent"]
                continue
            size = told["parameter_bytes"]
            peaks[name].append(told["peak_bytes"])
    rows: dict[str, dict[str, Any]] = {}
    for name in chosen:
        against = CONTENDERS[name]
        if name in absent:
            continue
        rows[name] = {"peak_bytes": max(peaks[name])}
        if against is not None and against in peaks:
            copies = [
                (own - base) / size for own, base in zip(peaks[name], peaks[against], strict=True)
            ]
            rows[name] |= {"against": against, "copies": max(copies, key=abs), "all": copies}
    return {"parameter_bytes": size, "repeats": repeats, "rows": rows, "absent": absent}


def in_a_process(name: str, megabytes: int) -> dict[str, Any]:
    """Run `main` of this module in a fresh process and give what it tells."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-W", "ignore", "-m", __name__, name, str(megabytes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RunError(f"memory of {name}: {done.stderr.strip().splitlines()[-1]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main(name: str, megabytes: int) -> dict[str, Any]:
    """Take a few steps of a method and give the peak of resident memory."""
    import torch

    from friendly_sam import SAM, BatchNoise, Euclidean, FriendlySAM, SharpnessAware
    from friendly_sam.lab.bench.peers import RHO, PlainFriendlySAM, optional

    torch.set_num_threads(1)
    width = 1024
    layers = [
        torch.nn.Linear(width, width, bias=False)
        for _ in range(max(1, round(megabytes * 1e6 / (4 * width**2))))
    ]
    parameters = [layer.weight for layer in layers]
    x = torch.randn(1, width)

    def closure() -> torch.Tensor:
        y = x
        for layer in layers:
            y = y + 0.01 * layer(y)
        loss = y.square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    base = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)

    def plain() -> None:
        base.zero_grad()
        closure()
        base.step()

    _warm_up()
    step: Callable[[], Any] = plain
    if name == "SAM":
        step = _closing(SAM(base, RHO), closure)
    elif name == "F-SAM":
        step = _closing(FriendlySAM(base, RHO), closure)
    elif name == "F-SAM, m in bf16":
        direction = BatchNoise(dtype=torch.bfloat16)
        step = _closing(
            SharpnessAware(base, RHO, direction=direction, geometry=Euclidean()), closure
        )
    elif name == "the authors' F-SAM":
        loop = PlainFriendlySAM(parameters, RHO)  # type: ignore[arg-type]

        def step() -> None:
            base.zero_grad()
            closure()
            loop.ascend()
            closure()
            loop.restore()
            base.step()

    elif name == "pytorch_optimizer's F-SAM":
        package = optional("pytorch_optimizer")
        if package is None:
            return {"absent": "not installed"}
        other = package.FriendlySAM(
            parameters, torch.optim.SGD, rho=RHO, foreach=True, lr=1e-3, momentum=0.9
        )

        def step() -> None:
            other.zero_grad()
            closure()
            other.step(closure)

    before = _reset_peak()
    for _ in range(3):
        step()
    return {
        "peak_bytes": _peak(),
        "parameter_bytes": sum(p.nbytes for p in parameters),
        "before_bytes": before,
    }


def _warm_up() -> None:
    """Bring the code of the methods into memory."""
    import torch

    from friendly_sam import SAM, BatchNoise, Euclidean, FriendlySAM, SharpnessAware
    from friendly_sam.lab.bench.peers import PlainFriendlySAM, optional

    layer = torch.nn.Linear(64, 64)
    parameters = list(layer.parameters())

    def closure() -> Any:
        loss = layer(torch.ones(1, 64)).square().mean()
        loss.backward()
        return loss

    def base() -> torch.optim.SGD:
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)

    half = BatchNoise(dtype=torch.bfloat16)
    for optimizer in (
        SAM(base()),
        FriendlySAM(base()),
        SharpnessAware(base(), 0.05, direction=half, geometry=Euclidean()),
    ):
        optimizer.step(closure)
    loop = PlainFriendlySAM(parameters)
    closure()
    loop.ascend()
    closure()
    loop.restore()
    package = optional("pytorch_optimizer")
    if package is not None:
        package.FriendlySAM(parameters, torch.optim.SGD, foreach=True, lr=1e-3).step(closure)


def _closing(optimizer: Any, closure: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: optimizer.step(closure)


def _reset_peak() -> int:
    """Forget the peak so far, where the system can do that; return what is held now."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass
    return resident()


def _peak() -> int:
    """The largest resident memory, in bytes."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident() -> int:
    """The resident memory of this process now, in bytes; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
