"""The figures of `theory.json`, each with the bound drawn in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.methods import Colour
from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import make_folder
from friendly_sam.lab.paper.theory.lemma1 import at_sigma
from friendly_sam.lab.plotting.canvas import Kind, Paint, legend, title, write_figure
from friendly_sam.lab.plotting.palette import Ink
from friendly_sam.lab.reading import read_json_object
from friendly_sam.lab.statistics import Interval, interval


@dataclass(frozen=True)
class Figure:
    """A figure in three formats."""

    name: str
    caption: str
    svg: Path
    png: Path
    pdf: Path


def figures(folder: Path, out: Path) -> list[Figure]:
    """Draw what `run` left in `folder`; the figures go to `out`."""
    path = folder / "theory.json"
    try:
        data = read_json_object(path)["data"]
    except KeyError as error:
        raise LabError(f"{path} is damaged: data is missing") from error
    make_folder(out)
    try:
        return _drawn(data, out)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        raise LabError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _drawn(data: dict[str, Any], out: Path) -> list[Figure]:
    first, lemma, second = data["theorem1"], data["lemma1"], data["theorem2"]
    slope, rate = interval(first["slopes"]), interval(second["slopes"])
    return [
        _write(
            "theorem1",
            "Error of the EMA against the learning rate, with λ = 1 - C γ^(2/3): a dot "
            "for the mean over each run (γT from 1.25 to 5), the mean over runs, the bounds of "
            "theorem 1 as printed and corrected. Slope over seeds "
            f"{slope}; the theorem says 1/3.",
            lambda axes, ink: _theorem1(axes[0], ink, first),
            out,
        ),
        _write(
            "lemma1",
            "Left: inner product of g - σ m with the full gradient at fixed weights, debiased "
            f"average, n = {counted(len(lemma['average']), 'seed')} (bars: 95 % interval), "
            "against 1 - σ. "
            "Right: the same at σ = 1 along a run, where m lags behind.",
            lambda axes, ink: _lemma1(axes, ink, lemma),
            out,
            columns=2,
        ),
        _write(
            "theorem2",
            "Average squared gradient norm of a run of T steps with γ = γ0/√T and ρ_t = ρ0/√t: a "
            "dot a run, the mean, the bounds of theorem 2 as printed and corrected. Slope over "
            f"seeds {rate}.",
            lambda axes, ink: _theorem2(axes[0], ink, second),
            out,
        ),
    ]


KINDS: tuple[Kind, ...] = ("svg", "png", "pdf")


def _write(name: str, caption: str, paint: Paint, out: Path, *, columns: int = 1) -> Figure:
    size = (7.2, 4.6) if columns == 1 else (10.5, 4.4)
    svg, png, pdf = write_figure(paint, out / name, KINDS, panels=columns, size=size)
    return Figure(name, caption, svg, png, pdf)


def _measured(
    axes: Any, ink: Ink, x: Sequence[float], values: Sequence[Sequence[float]], label: str
) -> list[Interval]:
    """Draw a dot for each run, and the means with their intervals."""
    colour = ink.colours["blue"]
    found = [interval(row) for row in values]
    for place, row in zip(x, values, strict=True):
        axes.plot([place] * len(row), row, ".", color=colour, alpha=0.35, markersize=4)
    means = [one.mean for one in found]
    reach = [one.reach for one in found]
    axes.errorbar(
        x, means, yerr=reach, color=colour, marker="o", capsize=3, linewidth=2, label=label
    )
    return found


def _bounds(axes: Any, ink: Ink, x: Sequence[float], rows: Sequence[dict[str, Any]]) -> None:
    corrected = [row["corrected"] for row in rows]
    printed = [row["printed"] for row in rows]
    axes.plot(x, corrected, "-", color=ink.colours["black"], linewidth=2, label="bound, corrected")
    axes.plot(x, printed, "--", color=ink.colours["grey"], linewidth=2, label="bound, as printed")


def _theorem1(axes: Any, ink: Ink, data: dict[str, Any]) -> None:
    rows = data["rows"]
    x = [row["lr"] for row in rows]
    _bounds(axes, ink, x, rows)
    found = _measured(axes, ink, x, [row["errors"] for row in rows], "measured, mean and 95 %")
    middle = len(x) // 2
    guide = [0.75 * found[middle].mean * (place / x[middle]) ** (1 / 3) for place in x]
    axes.plot(x, guide, ":", color=ink.bound, linewidth=1.5, label="slope 1/3")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="learning rate γ",
        ylabel="||m_T - ∇L(w_T)||, mean over T",
    )
    title(axes, "Theorem 1: error of the EMA")
    legend(axes)


def _lemma1(panels: Sequence[Any], ink: Ink, data: dict[str, Any]) -> None:
    fixed, along = panels
    sigmas = data["sigmas"]
    fixed.plot(
        sigmas,
        [1 - sigma for sigma in sigmas],
        "-",
        color=ink.colours["black"],
        linewidth=2,
        label="lemma: 1 - σ",
    )
    values = [interval(at_sigma(data, sigma)) for sigma in sigmas]
    fixed.errorbar(
        sigmas,
        [one.mean for one in values],
        yerr=[one.reach for one in values],
        color=ink.colours["blue"],
        fmt="o",
        capsize=4,
        label="measured, mean and 95 %",
    )
    fixed.axhline(0, color=ink.bound, linewidth=1)
    fixed.set(xlabel="σ", ylabel="<g - σ m, ∇L> / ||∇L||²")
    title(fixed, "Lemma 1 at fixed weights")
    legend(fixed)

    styles: tuple[tuple[str, str, str, Colour], ...] = (
        ("paper", "algorithm 1", "-", "blue"),
        ("debiased", "debiased m", "--", "black"),
    )
    for variant, words, style, colour in styles:
        products = data[variant]["products"]
        steps = range(1, len(products) + 1)
        along.plot(
            steps,
            products,
            style,
            color=ink.colours[colour],
            linewidth=1.6,
            label=f"<g - m, ∇L>, {words}",
        )
    norms = data["paper"]["norms"]
    along.plot(range(1, len(norms) + 1), norms, ":", color=ink.bound, label="||∇L||²")
    along.axhline(0, color=ink.bound, linewidth=1)
    along.set(xlabel="step t", ylabel="mean over seeds")
    title(along, "The same along a run, σ = 1")
    legend(along)


def _theorem2(axes: Any, ink: Ink, data: dict[str, Any]) -> None:
    from matplotlib.ticker import NullLocator

    rows = data["rows"]
    x = [row["steps"] for row in rows]
    _bounds(axes, ink, x, rows)
    _measured(axes, ink, x, [row["averages"] for row in rows], "measured, mean and 95 %")
    axes.set(xlabel="steps T", ylabel="(1/T) Σ ||∇L(w_t)||²", yscale="log")
    axes.set_xscale("log", base=2)
    axes.set_xticks(x, [f"{place:,}" for place in x])
    axes.xaxis.set_minor_locator(NullLocator())
    _plain_ticks(axes)
    title(axes, "Theorem 2: convergence of F-SAM")
    legend(axes)


def _plain_ticks(axes: Any) -> None:
    """Label the ticks of a logarithmic y axis with plain numbers, three a decade."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.yaxis.set_minor_locator(NullLocator())
