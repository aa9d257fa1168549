"""All that was found, as one text to send back."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence

import torch

from friendly_sam import __version__
from friendly_sam.lab.promises.outcome import Outcome, Verdict
from friendly_sam.lab.records.environment import environment
from friendly_sam.lab.report.tables import Table, plain_table


def heading(device: torch.device) -> str:
    """Return what the checks run on; nothing of it names the machine or its user."""
    here = environment()
    lines = {
        "friendly-sam": f"{__version__}, commit {here['commit'] or 'unknown'}",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
        "python": platform.python_version(),
        "platform": here["platform"],
        "device": f"{device}, {device_name(device)}",
        "threads": str(torch.get_num_threads()),
    }
    width = max(map(len, lines))
    told = "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())
    return f"fsam selftest\n\n{told}"


def device_name(device: torch.device) -> str:
    """Return what the device is called."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "xpu":
        return torch.xpu.get_device_name(device)
    return str(environment()["processor"])


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return how many checks came to what."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)


def text(device: torch.device, outcomes: Sequence[Outcome], table: Table | None) -> str:
    """Return the whole record."""
    parts = [heading(device), "\n".join(outcome.line() for outcome in outcomes)]
    if table is not None:
        parts.append(
            "A step of ResNet-8 of width 16; contenders take turns.\n\n" + plain_table(table)
        )
    parts.append(summary(outcomes))
    return "\n\n".join(parts) + "\n"
