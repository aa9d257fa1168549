"""Ten thousand steps: does memory grow? Measured in a process of its own."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from friendly_sam.lab.errors import RunError

METHODS = ("SAM", "F-SAM")


def measure_growth(
    *,
    early: int,
    late: int,
    methods: tuple[str, ...] = METHODS,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Memory after `early` and after `late` steps; give what the JSON holds."""
    rows = {}
    for name in methods:
        progress(f"scaling: memory over {late:,} steps of {name}")
        command = [sys.executable, "-W", "ignore", "-m", __name__, name, str(early), str(late)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RunError(f"steps of {name}: {done.stderr.strip().splitlines()[-1]}")
        rows[name] = json.loads(done.stdout.splitlines()[-1])
    return {"early": early, "late": late, "rows": rows}


def main(name: str, early: int, late: int) -> dict[str, Any]:
    """Take steps on a small network; give resident memory, Python's own, and its objects."""
    import torch

    from friendly_sam import SAM, FriendlySAM
    from friendly_sam.lab.bench.memory import resident

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    recipe: Any = {"SAM": SAM, "F-SAM": FriendlySAM}[name]
    base = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    optimizer = recipe(base, 0.05, model=model)
    x, y = torch.randn(16, 8), torch.randn(16, 4)

    def closure() -> torch.Tensor:
        loss: torch.Tensor = (model(x) - y).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def state() -> dict[str, int]:
        gc.collect()
        python = tracemalloc.get_traced_memory()[0]
        return {"resident": resident(), "python": python, "objects": len(gc.get_objects())}

    tracemalloc.start()
    for count in (early // 2, early - early // 2):
        for _ in range(count):
            optimizer.step(closure)
        first = state()  # for the second time: looking takes memory of its own
    for _ in range(late - early):
        optimizer.step(closure)
    return {"early": first, "late": state()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
