"""The figures of a benchmark, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from friendly_sam.lab.bench.arithmetic import FLOOR, FLOOR_PATTERN, OPTAX
from friendly_sam.lab.bench.shapes import TITLES
from friendly_sam.lab.plotting.canvas import Kind, Paint, legend, title, write_figure
from friendly_sam.lab.plotting.palette import Ink, method_look


def draw_all(parts: dict[str, Any], folder: Path) -> dict[str, str]:
    """Draw what was measured; return the caption of each figure by the name of its part."""
    drawn = {}
    if parts.get("arithmetic", {}).get("networks"):
        networks = parts["arithmetic"]["networks"]
        _write(
            folder, "arithmetic", lambda axes, ink: _arithmetic(axes, ink, networks),
            columns=len(networks), size=(1.6 + 3.3 * len(networks), 3.8),
        )  # fmt: skip
        drawn["arithmetic"] = "F-SAM's ascent and restore against copies of as many bytes"
    if "step" in parts:
        _write(folder, "step", lambda axes, ink: _step(axes[0], ink, parts["step"]), size=(7.6, 5))
        drawn["step"] = "A whole training step against SGD's"
    if "memory" in parts:
        rows = parts["memory"]["rows"]
        _write(folder, "memory", lambda axes, ink: _memory(axes[0], ink, rows), size=(7.6, 3.6))
        drawn["memory"] = "Peak memory beyond the base optimizer, in copies of the parameters"
    if "scaling" in parts:
        sizes = parts["scaling"]["sizes"]
        _write(
            folder, "scaling", lambda axes, ink: _scaling(axes, ink, sizes), columns=2,
            size=(10.5, 4.2),
        )  # fmt: skip
        drawn["scaling"] = "Time of ascent and restore against numbers of parameters and tensors"
    return drawn


KINDS: tuple[Kind, ...] = ("svg", "png")


def _write(
    folder: Path, name: str, paint: Paint, *, columns: int = 1, size: tuple[float, float]
) -> None:
    write_figure(paint, folder / name, KINDS, panels=columns, size=size)


def _colour(name: str, ink: Ink) -> str:
    """Return the colour of the method that a name starts with; other code is black."""
    if name.startswith("floor"):
        return ink.bound
    look = method_look("F-SAM" if name.startswith("this library") else name)
    return ink.colours["black" if look is None else look.colour]


def _bars(axes: Any, ink: Ink, values: dict[str, dict[str, float]], *, digits: int = 2) -> None:
    """Horizontal bars from the top down, with quartiles and numbers."""
    names = list(values)[::-1]
    for place, name in enumerate(names):
        found = values[name]
        middle = found["median"]
        reach = [[max(0.0, middle - found["low"])], [max(0.0, found["high"] - middle)]]
        axes.barh(place, middle, height=0.68, color=_colour(name, ink))
        axes.errorbar(middle, place, xerr=reach, ecolor=ink.text, capsize=2.5, fmt="none")
        axes.annotate(
            f"{middle:.{digits}f}", (found["high"], place), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8.5,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_xlim(0, 1.12 * max(found["high"] for found in values.values()))
    axes.grid(visible=False, axis="y")


def _arithmetic(panels: Sequence[Any], ink: Ink, networks: dict[str, Any]) -> None:
    for axes, (network, methods) in zip(panels, networks.items(), strict=True):
        rows = methods["F-SAM"]["rows"]
        one = {"median": 1.0, "low": 1.0, "high": 1.0}
        values = {
            name: one if name == FLOOR else row["against"][FLOOR]
            for name, row in rows.items()
            if name != OPTAX
        }
        order = [FLOOR_PATTERN, FLOOR]
        values = {name: values[name] for name in [*order, *[n for n in values if n not in order]]}
        _bars(axes, ink, values)
        axes.axvline(1.0, color=ink.bound, linewidth=1, linestyle="--")
        axes.set_xlabel("time / copies of as many bytes")
        title(axes, TITLES[network])
        if axes is not panels[0]:
            axes.set_yticklabels([])


def _step(axes: Any, ink: Ink, part: dict[str, Any]) -> None:
    values = {name: row["against SGD"] for name, row in part["rows"].items()}
    _bars(axes, ink, values)
    axes.set_xlabel("time of a step / SGD's")
    axes.axvline(1.0, color=ink.bound, linewidth=1, linestyle="--")
    title(axes, f"A whole step, ResNet-8, batch {part['batch']}")


def _memory(axes: Any, ink: Ink, rows: dict[str, Any]) -> None:
    found = {name: row["copies"] for name, row in rows.items() if "copies" in row}
    _bars(axes, ink, {n: {"median": v, "low": v, "high": v} for n, v in found.items()})
    axes.set_xlabel("copies of the parameters beyond the base optimizer")
    title(axes, "Peak memory")


def _scaling(panels: Sequence[Any], ink: Ink, sizes: dict[str, Any]) -> None:
    for axes, name in zip(panels, ("parameters", "tensors"), strict=True):
        part = sizes[name]
        x = part["x"]
        y, low, high = (
            [1e3 * one[key] for one in part["seconds"]] for key in ("median", "low", "high")
        )
        axes.fill_between(x, low, high, color=ink.colours["blue"], alpha=0.16, linewidth=0)
        label = f"measured, slope {part['slope']:.2f}, upper half {part['upper_slope']:.2f}"
        axes.plot(x, y, color=ink.colours["blue"], marker="o", linewidth=2, label=label)
        line = [y[-1] * value / x[-1] for value in x]
        axes.plot(x, line, ":", color=ink.bound, linewidth=1.5, label="slope 1")
        axes.set(xscale="log", yscale="log", xlabel=f"number of {name}", ylabel="ms")
        title(axes, f"Cost against {name}")
        legend(axes)
