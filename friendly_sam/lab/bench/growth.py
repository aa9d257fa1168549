"""Ten thousand steps: does memory grow? Measured in a process of its own."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import RunError

MEASURED = ("SAM", "F-SAM")


def measure_growth(
    *,
    early: int,
    late: int,
    methods: tuple[str, ...] = MEASURED,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Memory after `early` and after `late` steps; return what the JSON holds."""
    rows = {}
    for name in methods:
        progress(f"scaling: memory over {counted(late, 'step')} of {name}")
        command = [sys.executable, "-W", "ignore", "-m", __name__, name, str(early), str(late)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RunError(f"steps of {name}: {done.stderr.strip().splitlines()[-1]}")
        rows[name] = json.loads(done.stdout.splitlines()[-1])
    return {"early": early, "late": late, "rows": rows}


def main(name: str, early: int, late: int) -> dict[str, Any]:
    """Take steps on a small network; return memory, objects and growth of Python's own."""
    import torch

    from friendly_sam import SAM, FriendlySAM
    from friendly_sam.lab.bench.memory import resident

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    recipe: Any = {"SAM": SAM, "F-SAM": FriendlySAM}[name]
    base = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    optimizer = recipe(base, 0.05, model=model)
    x, y = torch.randn(16, 8), torch.randn(16, 4)

    def closure() -> torch.Tensor:
        loss: torch.Tensor = (model(x) - y).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def steps(count: int) -> dict[str, int]:
        for _ in range(count):
            optimizer.step(closure)
        gc.collect()
        objects = sum(1 for _ in gc.get_objects())
        return {"resident": resident(), "objects": objects}

    steps(early // 2)
    found: dict[str, Any] = {"early": steps(early - early // 2), "late": steps(late - early)}
    tracemalloc.start()  # from here on, for it takes memory itself
    steps(early // 2)
    before = tracemalloc.get_traced_memory()[0]
    steps(early)
    found["python"] = {"steps": early, "bytes": tracemalloc.get_traced_memory()[0] - before}
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
