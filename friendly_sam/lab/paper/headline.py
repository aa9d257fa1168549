"""The picture of README: what SAM and F-SAM gain over a base optimizer that was tuned alike.

Where the base was also given the time that they take, as twice the epochs, it stands beside.

    python -m friendly_sam.lab.paper.headline docs

reads `docs/results/**/*.json` and draws `docs/results/headline.svg`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from friendly_sam.lab.paper.comparisons import Against, compare
from friendly_sam.lab.paper.tuned_record import TunedRecord, read_records
from friendly_sam.lab.plotting.canvas import legend_below, title, write_figure
from friendly_sam.lab.plotting.palette import Ink, method_look

SOURCES = (
    "mini/table1.json",
    "mini/table6.json",
    "mini/cheaper.json",
    "small/table1.json",
    "small/table2.json",
    "small/table6.json",
    "small/cheaper.json",
    "medium/table1.json",
    "medium/table6.json",
    "medium/cheaper.json",
    "medium/long-training.json",
    "real/table5.json",
    "real/transfer-noise.json",
)
METHODS = ("SAM", "F-SAM")
LONGER = "SGD, twice the epochs"
DRAWN = (*METHODS, LONGER)
FILE = "headline.svg"


@dataclass(frozen=True)
class Line:
    """One task, and the leads of the methods on it."""

    label: str
    leads: tuple[Against, ...]


def lines(records: Sequence[TunedRecord]) -> list[Line]:
    """Return the leads of each task, corrected for their number within an experiment's table."""
    found: dict[str, Line] = {}
    for table in dict.fromkeys((record.scale, record.experiment) for record in records):
        own = [r for r in records if (r.scale, r.experiment) == table and r.entries]
        leads = compare((e, r.entries[0]) for r in own for e in r.entries[1:])
        leads = [lead for lead in leads if lead.entry.name in DRAWN]
        for record in own:
            mine = tuple(a for a in leads if any(a.entry is entry for entry in record.entries))
            base = record.entries[0].name
            task = record.task.replace(", 0 % random labels", ", right labels")
            task = f"fine-tuning, {task}" if record.scale == "real" else task
            label = f"{task}\nover {base}, n = {len(record.entries[0].last)}"
            if mine:
                runs = " ".join(str(a.entry.last) for a in mine if a.entry.name in METHODS)
                known = found.setdefault(runs, Line(label, mine))
                # Of experiments that share runs, the fullest tells, under the longest name.
                found[runs] = Line(
                    max(known.label, label, key=len), max(known.leads, mine, key=len)
                )
    return list(found.values())


def draw(shown: Sequence[Line], path: Path) -> None:
    """Draw a line per task: points with 95 % intervals, filled where they are significant."""

    def paint(all_axes: Sequence[Any], ink: Ink) -> None:
        (axes,) = all_axes
        drawn = {lead.entry.name for line in shown for lead in line.leads}
        names = [name for name in DRAWN if name in drawn]
        for name in names:
            look = method_look(name)
            assert look is not None
            style: dict[str, Any] = {
                "color": ink.colours[look.colour], "marker": look.marker, "markersize": 7,
                "capsize": 3, "linestyle": "none",
            }  # fmt: skip
            axes.errorbar([], [], xerr=[], label=name, **style)
            for row, line in enumerate(shown):
                for lead in (lead for lead in line.leads if lead.entry.name == name):
                    mean = lead.difference.mean
                    significant = lead.verdict in ("better", "worse")
                    axes.errorbar(
                        mean, row + 0.24 * (DRAWN.index(name) - 1),
                        xerr=mean - lead.difference.low,
                        markerfacecolor=style["color"] if significant else "none", **style,
                    )  # fmt: skip
        axes.axvline(0, color=ink.text, linewidth=1)
        axes.set_yticks(range(len(shown)), [line.label for line in shown], fontsize=9)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("points of test accuracy, 95 % intervals\n(filled: significant)")
        title(axes, "Lead over the tuned base optimizer")
        legend_below(axes, names)

    write_figure(paint, path, ("svg",), size=(8.0, 0.52 * len(shown) + 1.6))


def refresh(docs: Path) -> Path:
    """Draw the picture again; return its path."""
    folder = docs / "results"
    files = [folder / name for name in SOURCES if (folder / name).is_file()]
    shown = lines([record for path in files for record in read_records(path)])
    if shown:
        draw(shown, folder / FILE)
    return folder / FILE


if __name__ == "__main__":
    print(refresh(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")))
