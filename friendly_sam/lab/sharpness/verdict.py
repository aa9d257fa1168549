"""What the measurements say: the paper's claim, and which of them say nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from friendly_sam.lab.report.groups import Group
from friendly_sam.lab.sharpness.measured import Measured
from friendly_sam.lab.statistics import paired_difference, summarize


def flatness_warning(measured: Sequence[Measured]) -> str:
    """Name the runs that did not learn: they are flat because they are nowhere near a minimum."""
    names = [one.run.folder.name for one in measured if not one.learned]
    if not names:
        return ""
    loss = "its loss is" if len(names) == 1 else "their losses are"
    return (
        f"Did not learn: {', '.join(names)} ({loss} that of a constant guess), so that being flat "
        "there says nothing about a minimum."
    )


UNJUDGED = (
    "Give one setting of SAM and one of F-SAM, finished, to judge the paper's claim that F-SAM's "
    "minima are flatter."
)


def verdict(groups: Sequence[Group], by_folder: Mapping[Path, Measured]) -> str | None:
    """Say whether F-SAM's λ_1 and λ_1/λ_5 are smaller than SAM's (the paper's appendix A7).

    `None` where there is not one setting of each that learned.
    """
    chosen = {}
    for family in ("SAM", "F-SAM"):
        fitting = [
            group
            for group in groups
            if group.family == family
            and group.finished
            and all(by_folder[run.folder].learned for run in group.runs)
        ]
        if len(fitting) != 1:
            return None
        chosen[family] = fitting[0]
    parts = []
    for key, name in (("lambda1", "λ1"), ("ratio", "λ1/λ5")):
        values = {
            family: {run.config.seed: by_folder[run.folder].spectrum[key] for run in group.runs}
            for family, group in chosen.items()
        }
        means = {family: summarize(list(found.values())) for family, found in values.items()}
        words = f"{name} {means['SAM'].mean:.3g} with SAM, {means['F-SAM'].mean:.3g} with F-SAM"
        difference = paired_difference(values["F-SAM"], values["SAM"])
        if difference is None:
            parts.append(f"{words} (one seed: undecided)")
            continue
        outcome = (
            "undecided" if not difference.holds else "smaller" if difference.high < 0 else "larger"
        )
        parts.append(f"{words}, difference {difference}, n = {difference.n}: {outcome}")
    return (
        f"The paper's claim is that F-SAM has the smaller λ1 and λ1/λ5. Here: {'; '.join(parts)}."
    )
