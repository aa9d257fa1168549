"""What a step costs on this device: contenders take turns, ratios within a round."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F

from friendly_sam import ASAM, SAM, FriendlySAM
from friendly_sam.lab.bench.timing import take_turns
from friendly_sam.lab.models import build
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.statistics import ratio, spread

SGD = "SGD"
RECIPES = {"SAM": SAM, "F-SAM": FriendlySAM, "ASAM": ASAM}


def measure_speed(
    device: torch.device, *, batch: int, size: int, rounds: int, seconds: float
) -> Table:
    """Time a whole training step of ResNet-8 of width 16; two passes cost about 2.

    Args:
        device: where it runs.
        batch: how many images a step has.
        size: how many pixels they have a side.
        rounds: how many rounds are kept at most.
        seconds: how long all of it may take; three rounds are kept in any case.
    """
    generator = torch.Generator().manual_seed(0)
    start = build("resnet8", classes=10, image_size=size)
    images = torch.randn(batch, 3, size, size, generator=generator).to(device)
    labels = torch.randint(10, (batch,), generator=generator).to(device)
    runs = {
        name: _timed(_step(name, copy.deepcopy(start).to(device), images, labels), device)
        for name in (SGD, *RECIPES)
    }
    for run in runs.values():
        run()
    once = sum(run() for run in runs.values())
    kept = max(3, min(rounds, int(seconds / max(once, 1e-6))))
    times = take_turns(runs, rounds=kept, warm_up=1)
    rows = [
        [name, spread(values).text(1e3, 2), ratio(values, times[SGD]).text(1, 3)]
        for name, values in times.items()
    ]
    return Table(header=["step", "ms (quartiles)", "of SGD's (quartiles)"], rows=rows)


def _step(
    name: str, model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> Callable[[], object]:
    base = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4)

    def closure() -> torch.Tensor:
        loss = F.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    if name in RECIPES:
        optimizer = RECIPES[name](base, model=model)
        return lambda: optimizer.step(closure)

    def plain() -> None:
        base.zero_grad()
        closure()
        base.step()

    return plain


def _timed(run: Callable[[], object], device: torch.device) -> Callable[[], float]:
    def contender() -> float:
        _finish(device)
        start = time.perf_counter()
        run()
        _finish(device)
        return time.perf_counter() - start

    return contender


def _finish(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
