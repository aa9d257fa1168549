"""How long the first fused step takes, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from friendly_sam.lab.errors import RunError

FIRST_STEP = """
import time, torch
from friendly_sam import FriendlySAM
p = torch.nn.Parameter(torch.zeros(2**16))
p.grad = torch.ones_like(p)
optimizer = FriendlySAM(torch.optim.SGD([p], lr=0.1), fused=True)
start = time.perf_counter()
with optimizer.perturbed():
    pass
print(time.perf_counter() - start)
"""


def measure_compilation(progress: Callable[[str], None] = print) -> dict[str, Any]:
    """Time it with nothing compiled, and with the kernels on disk; give what the JSON holds."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
        seconds = {}
        for name in ("first time", "kernels on disk"):
            progress(f"compile: {name}")
            run = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", FIRST_STEP],
                env=environment, capture_output=True, text=True,
            )  # fmt: skip
            if run.returncode:
                raise RunError(f"compile, {name}: {run.stderr.strip().splitlines()[-1]}")
            seconds[name] = float(run.stdout.split()[-1])
    return {"seconds": seconds}
