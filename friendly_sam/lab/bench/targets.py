"""What the figures are held against: ratios within one run, copies of the parameters, growth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from friendly_sam.lab.bench.device import OPERATIONS
from friendly_sam.lab.bench.peers import LOOPS, OTHER, OURS
from friendly_sam.lab.bench.shapes import TITLES
from friendly_sam.lab.statistics import Spread

ARITHMETIC = {
    method: ((name, 0.75 if method == "F-SAM" else 1.0), (OTHER, 0.85))
    for method, (name, _) in LOOPS.items()
}
"""By method, what the ascent and restore of this library are held against."""
STEP = {
    "F-SAM": 2.03,
    "F-SAM, ascent on 1/4": 1.27,
    "F-SAM, ascent on 1/8": 1.16,
    "F-SAM, ascent on 1/16": 1.10,
    "MSAM": 1.05,
    "Stale-SAM": 1.05,
    "Stale-F-SAM": 1.05,
}
COPIES = {"SAM": 1.0, "F-SAM": 2.0}
WITHIN = 0.03
EPOCH = 1.05
SLOPE = 1.05
"""A straight line has slope 1; the rest is for the noise of the clock."""
GROWTH = 2**20
"""Bytes of resident memory that come and go whatever a program does."""


@dataclass(frozen=True)
class Target:
    """A figure and its bound."""

    what: str
    bound: str
    found: str
    met: bool


def targets(parts: dict[str, Any]) -> list[Target]:
    """Hold what was measured against its bounds.

    What was not measured is left out, and so is what `--quick` measured at another size.
    """
    parts = {name: part for name, part in parts.items() if not part.get("quick")}
    return [
        *_arithmetic(parts.get("arithmetic", {})),
        *_step(parts.get("step", {})),
        *_memory(parts.get("memory", {})),
        *_epoch(parts.get("epoch", {})),
        *_scaling(parts.get("scaling", {})),
        *_device(parts.get("device", {})),
    ]


def _at_most(what: str, bound: float, found: dict[str, float]) -> Target:
    ratio = Spread(**found)
    return Target(what, f"at most {bound:g}", ratio.text(), ratio.median <= bound)


def _arithmetic(part: dict[str, Any]) -> Iterator[Target]:
    for network, methods in part.get("networks", {}).items():
        for method, bounds in ARITHMETIC.items() if network != "mlp" else ():
            rows = methods.get(method, {}).get("rows", {})
            for other, bound in bounds:
                if other in rows:
                    what = f"{TITLES[network]}, {method}: {OURS} / {other}"
                    yield _at_most(what, bound, rows[OURS]["against"][other])


def _step(part: dict[str, Any]) -> Iterator[Target]:
    for name, bound in STEP.items():
        if name in part.get("rows", {}):
            yield _at_most(f"step: {name} / SGD", bound, part["rows"][name]["against SGD"])


def _memory(part: dict[str, Any]) -> Iterator[Target]:
    for name, copies in COPIES.items():
        found = part.get("rows", {}).get(name, {}).get("copies")
        if found is not None:
            met = abs(found - copies) <= WITHIN * copies
            bound = f"{copies:g} within {100 * WITHIN:g} %"
            yield Target(f"memory: {name}, copies of the parameters", bound, f"{found:.3f}", met)


def _epoch(part: dict[str, Any]) -> Iterator[Target]:
    for name, row in part.get("rows", {}).items():
        yield _at_most(f"epoch of the lab / bare loop, {name}", EPOCH, row["lab against bare"])


def _scaling(part: dict[str, Any]) -> Iterator[Target]:
    for axis in ("parameters", "tensors"):
        found = part.get("sizes", {}).get(axis, {}).get("upper_slope")
        if found is not None:
            what = f"exponent of growth with {axis}, upper half"
            yield Target(what, "at most 1", f"{found:.2f}", found <= SLOPE)
    growth = part.get("growth")
    if growth is None:
        return
    for name, row in growth["rows"].items():
        more = row["late"]["resident"] - row["early"]["resident"]
        objects = row["late"]["objects"] - row["early"]["objects"]
        what = f"{name}: memory from step {growth['early']:,} to {growth['late']:,}"
        found = f"{more / 1024:+,.0f} KiB, {objects:+,} objects"
        yield Target(what, "no growth", found, more <= GROWTH and objects <= 100)


def _device(part: dict[str, Any]) -> Iterator[Target]:
    for network, one in part.get("networks", {}).items():
        for method, bound in OPERATIONS.get(network, {}).items():
            found = one["rows"][method]["float32"]
            what = f"{TITLES[network]}, a step of {method} on an accelerator"
            count = found["operations"]
            yield Target(f"{what}: operations", f"at most {bound}", str(count), count <= bound)
            waits = found["synchronisations"]
            yield Target(f"{what}: waits", "0", str(waits), waits == 0)
