"""What was measured, as tables of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from friendly_sam.lab.bench import device
from friendly_sam.lab.bench.arithmetic import FLOOR, FLOOR_PATTERN
from friendly_sam.lab.bench.peers import LOOPS, OTHER
from friendly_sam.lab.bench.shapes import TITLES
from friendly_sam.lab.bench.targets import targets
from friendly_sam.lab.counting import counted
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.statistics import Spread

SHORT = {
    **{name: name.partition("'")[0].removeprefix("the ") for name, _ in LOOPS.values()},
    OTHER: OTHER,
    FLOOR: "copies",
    FLOOR_PATTERN: "pattern",
}
"""Names as short as the head of a column."""

Titled = tuple[str, str, Table]
"""A title, a note, and the table."""


def tables(parts: dict[str, Any]) -> list[Titled]:
    """A table for each thing that was measured, the targets last."""
    makers = {
        "arithmetic": arithmetic,
        "step": step,
        "memory": memory,
        "epoch": epoch,
        "scaling": scaling,
        "device": device.tables,
    }
    found = [table for name, make in makers.items() if name in parts for table in make(parts[name])]
    held = targets(parts)
    if held:
        rows = [[t.what, t.bound, t.found, "yes" if t.met else "NO"] for t in held]
        note = "Ratios with the quartiles of the ratios within a round."
        header = ["target", "bound", "found", "met"]
        found.append(("Targets", note, Table(header=header, rows=rows)))
    return found


def arithmetic(part: dict[str, Any]) -> Iterator[Titled]:
    """Ascent and restore, a table for each network and method."""
    for network, methods in part["networks"].items():
        for method, one in methods.items():
            loop = LOOPS[method][0]
            others = [name for name in (loop, OTHER, FLOOR, FLOOR_PATTERN) if name in one["rows"]]
            rows = []
            for name, row in one["rows"].items():
                times = [Spread(**row[key]) for key in ("seconds", "ascent", "restore")]
                ratios = [
                    "1.00" if other == name else f"{row['against'][other]['median']:.2f}"
                    for other in others
                ]
                whole = name == "optax"
                cells = [times[0].text(1e3, 1)]
                cells += ["", ""] if whole else [f"{1e3 * t.median:.1f}" for t in times[1:]]
                rows.append([name, *cells, *ratios])
            rows += [[name, why, *[""] * (2 + len(others))] for name, why in one["absent"].items()]
            header = ["", "ms (quartiles)", "ascent", "restore"]
            header += [f"/ {SHORT[other]}" for other in others]
            title = f"{method} on the shapes of {TITLES[network]}"
            note = (
                f"{one['parameters']:,} parameters in {one['tensors']} tensors, "
                f"{_threads(one['threads'])}, {counted(one['rounds'], 'round')}."
            )
            yield title, note, Table(header=header, rows=rows)


def step(part: dict[str, Any]) -> Iterator[Titled]:
    """Whole steps."""
    rows = [
        [name, Spread(**row["seconds"]).text(1e3, 1), Spread(**row["against SGD"]).text(1, 3)]
        for name, row in part["rows"].items()
    ]
    rows += [[name, why, ""] for name, why in part["absent"].items()]
    note = (
        f"ResNet-8 of width 16, batch {part['batch']}, images of {part['size']}x{part['size']}, "
        f"{_threads(part['threads'])}, {counted(part['rounds'], 'round')}."
    )
    header = ["", "ms per step (quartiles)", "/ SGD (quartiles)"]
    yield "A whole training step", note, Table(header=header, rows=rows)


def memory(part: dict[str, Any]) -> Iterator[Titled]:
    """Peaks and copies."""
    rows = []
    for name, row in part["rows"].items():
        copies = f"{row['copies']:.3f}" if "copies" in row else ""
        rows.append([name, f"{row['peak_bytes'] / 1e6:,.0f}", copies, row.get("against", "")])
    rows += [[name, why, "", ""] for name, why in part["absent"].items()]
    note = (
        f"Peak of resident memory of a process, {part['parameter_bytes'] / 1e6:,.0f} MB of "
        f"parameters, SGD with momentum as the base; {counted(part['repeats'], 'process')} each."
    )
    header = ["", "peak, MB", "copies of the parameters", "beyond"]
    yield "Peak memory beyond the base optimizer", note, Table(header=header, rows=rows)


def epoch(part: dict[str, Any]) -> Iterator[Titled]:
    """The lab against bare loops, and where its time goes."""
    rows = [
        [
            name,
            Spread(**row["bare"]).text(1e3, 0),
            Spread(**row["lab"]).text(1e3, 0),
            Spread(**row["lab against bare"]).text(1, 3),
            Spread(**row["control against bare"]).text(1, 3),
        ]
        for name, row in part["rows"].items()
    ]
    note = (
        f"{part['network']}, {counted(part['images'], 'image')} of {part['size']}x{part['size']}, "
        f"flipped and cropped, batch {part['batch']}, {_threads(part['threads'])}, "
        f"{counted(part['rounds'], 'round')}."
    )
    header = ["", "bare loop, ms", "lab, ms", "lab / bare", "a second bare loop / bare"]
    yield "An epoch of the lab", note, Table(header=header, rows=rows)
    names = list(next(iter(part["rows"].values()))["parts"])
    shares = [
        [
            name,
            *(
                f"{100 * row['parts'][name] / row['parts']['epoch']:.1f} %"
                for row in part["rows"].values()
            ),
        ]
        for name in names
        if name != "epoch"
    ]
    note = "Shares of an epoch's processor time."
    yield "Where the time goes", note, Table(header=["", *part["rows"]], rows=shares)


def scaling(part: dict[str, Any]) -> Iterator[Titled]:
    """Sizes, processes and steps."""
    sizes = part["sizes"]
    rounds = counted(sizes["rounds"], "round")
    where = f"F-SAM, ascent and restore, {_threads(sizes['threads'])}, {rounds}."
    for axis in ("parameters", "tensors"):
        one = sizes[axis]
        rows = []
        for x, seconds in zip(one["x"], one["seconds"], strict=True):
            each = 1e9 * seconds["median"] / x
            rows.append([f"{x:,}", Spread(**seconds).text(1e3, 3), f"{each:,.2f}"])
        header = [axis, "ms (quartiles)", f"ns each of the {axis}"]
        note = (
            f"{where} Time grows as the number to the power {one['slope']:.2f}; over the upper "
            f"half of the range, to the power {one['upper_slope']:.2f}."
        )
        yield f"Cost against the number of {axis}", note, Table(header=header, rows=rows)
    processes = part.get("processes")
    if processes:
        rows = [
            [f"{count}", name, Spread(**row["seconds"]).text(1e3, 1),
             Spread(**row["against SGD"]).text(1, 2)]
            for count, found in processes["rows"].items()
            for name, row in found.items()
        ]  # fmt: skip
        note = (
            f"DistributedDataParallel by gloo, ResNet-8, {counted(processes['batch'], 'image')} "
            f"and one thread per process, wall time, {counted(processes['rounds'], 'round')}."
        )
        header = ["processes", "method", "ms per step (quartiles)", "/ SGD (quartiles)"]
        yield "A step against the number of processes", note, Table(header=header, rows=rows)
    growth = part.get("growth")
    if growth:
        rows = [
            [name, *(f"{row[key]['resident'] / 1024:,.0f}" for key in ("early", "late")),
             f"{row['late']['objects'] - row['early']['objects']:+,}",
             f"{row['python']['bytes']:+,} in {counted(row['python']['steps'], 'step')}"]
            for name, row in growth["rows"].items()
        ]  # fmt: skip
        header = ["", *(f"KiB after {counted(growth[key], 'step')}" for key in ("early", "late"))]
        header += ["objects", "bytes of Python's own"]
        note = "A small network, each method in a process of its own."
        yield "Memory over many steps", note, Table(header=header, rows=rows)


def _threads(count: int) -> str:
    return "processor time of 1 thread" if count == 1 else f"wall time, {counted(count, 'thread')}"
