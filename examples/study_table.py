"""The results of a study as a table and a page: means, intervals, paired differences, verdict."""

import argparse
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sentences import Sentences

from friendly_sam.lab.records.environment import environment
from friendly_sam.lab.statistics import (
    Difference,
    detectable,
    holm,
    interval,
    p_value,
    paired_difference,
)


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """A tuned method on the fresh seeds of a task."""

    method: str
    noise: float
    accuracy: dict[int, float]
    """By seed, %."""
    settings: dict[str, Any]
    edge: tuple[str, ...]
    """Settings that were chosen at the edge of what was searched."""
    validation: float
    """Accuracy of the choice on validation sentences, %."""
    guessing: float
    """What guessing could reach there: chance and two standard errors, %."""
    seconds: float
    """Of one core, the search included."""

    @property
    def tuned(self) -> bool:
        """Whether the search found anything better than guessing."""
        return self.validation > self.guessing


def guessing(classes: int, sentences: int) -> float:
    """Return the accuracy on so many sentences that guessing hardly exceeds, in %."""
    chance = 1 / classes
    return 100 * (chance + 2 * math.sqrt(chance * (1 - chance) / sentences))


@dataclass(frozen=True)
class Lead:
    """How far a method is ahead of AdamW, seed by seed."""

    method: str
    noise: float
    difference: Difference
    p: float
    """After Holm's correction for all leads of the study."""
    could_show: float
    """The difference that as many seeds would have shown in four of five cases."""
    tuned: bool
    """Whether both searches found anything better than guessing."""

    def __str__(self) -> str:
        return f"{self.difference}, p = {self.p:.3f}"


def leads(found: list[Fresh]) -> list[Lead]:
    """Compare every other method with AdamW at the same share of wrong labels."""
    bases = {result.noise: result for result in found if result.method == "AdamW"}
    others = [result for result in found if result.method != "AdamW"]
    pairs = [(result, bases[result.noise]) for result in others]
    raw = [p_value(result.accuracy, base.accuracy) for result, base in pairs]
    corrected = holm([1.0 if p is None else p for p in raw])
    made = []
    for (result, base), p in zip(pairs, corrected, strict=True):
        difference = paired_difference(result.accuracy, base.accuracy)
        assert difference is not None  # two seeds at least
        apart = [result.accuracy[seed] - base.accuracy[seed] for seed in base.accuracy]
        tuned = result.tuned and base.tuned
        made.append(Lead(result.method, result.noise, difference, p, detectable(apart), tuned))
    return made


def table(found: list[Fresh]) -> Iterator[str]:
    """Yield the rows of the table."""
    ahead = {(lead.method, lead.noise): str(lead) for lead in leads(found)}
    yield (
        "| wrong labels | method | test accuracy, % | minus AdamW, points | n "
        "| learning rate | weight decay | radius | validation, % |"
    )
    yield "|---:|---|---|---|---:|---:|---:|---:|---:|"
    for result in found:
        mean = interval(list(result.accuracy.values()))
        chosen = [
            f"{result.settings[name]:g}{'*' if name in result.edge else ''}"
            if name in result.settings
            else ""
            for name in ("learning_rate", "weight_decay", "rho")
        ]
        yield (
            f"| {result.noise:.0%} | {result.method} "
            f"| {mean.mean:.1f} [{mean.low:.1f}, {mean.high:.1f}] "
            f"| {ahead.get((result.method, result.noise), '')} | {mean.n} | {' | '.join(chosen)} "
            f"| {result.validation:.1f} |"
        )


def verdict(lead: Lead) -> str:
    """Return what a lead shows, in a sentence."""
    task = f"With {lead.noise:.0%} wrong labels" if lead.noise else "With right labels"
    if not lead.tuned:
        return (
            f"{task}, the searches of AdamW and {lead.method} did not both find settings that are "
            "better than guessing on validation sentences: what is tabled is no comparison of "
            "tuned methods."
        )
    if lead.p < 0.05:
        word = "beats" if lead.difference.mean > 0 else "loses to"
        return f"{task}, {lead.method} {word} tuned AdamW."
    return (
        f"{task}, {lead.method} does not beat tuned AdamW: no significant difference "
        f"({lead.could_show:.1f} points would have been seen in four of five cases)."
    )


def page(found: list[Fresh], data: Sentences, chosen: argparse.Namespace) -> str:
    """Return the page of a study."""
    here = environment()
    minutes = sum(result.seconds for result in found) / 60
    commit = here["commit"] or "unknown"
    arguments = [argument for argument in here["arguments"] if argument != str(chosen.folder)]
    command = shlex.join(["python", "examples/huggingface_trainer.py"])
    folder = [] if chosen.folder is None else ["FOLDER"]
    return "\n".join(
        [
            "# Sentences and a pretrained text encoder",
            "",
            f"Sentences: {data.name}, {len(data.classes)} classes; {chosen.size} for training, "
            f"{chosen.size} for validation, both drawn anew by each seed, and the same "
            f"{len(data.test)} for the test.",
            f"Of the six layers of MiniLM (all-MiniLM-L6-v2) {chosen.layers} and a new linear "
            f"layer are trained, {chosen.epochs} times over the sentences in batches of 16, "
            "through the Hugging Face `Trainer`: AdamW alone, SAM and F-SAM over it; at most "
            f"{chosen.tokens} tokens of a sentence are read.",
            f"Trials of each method: {chosen.trials}, over learning rate, weight decay and radius, "
            f"by validation sentences; search seeds: {chosen.search_seeds}. Wrong labels are in "
            "training alone.",
            "",
            *(verdict(lead) for lead in leads(found)),
            "",
            *table(found),
            "",
            "Accuracy with its 95 % interval over the seeds; differences are paired by seed, with "
            "p after Holm's correction for all of them. A star marks a choice at the edge of what "
            "was searched; validation is that of the choice.",
            "",
            f"`{' '.join([command, *folder, *_shown(arguments)])}`",
            "",
            f"{minutes:.0f} minutes of one core ({here['processor']}), torch "
            f"{here['packages']['torch']}, transformers {here['packages']['transformers']}, "
            f"commit {commit[:7]}{'+' if commit.endswith('+') else ''}.",
            "",
        ]
    )


def _shown(arguments: list[str]) -> list[str]:
    """Return the arguments without the places that results are written to."""
    kept, skip = [], False
    for argument in arguments:
        if argument in ("--output", "--page"):
            skip = True
        elif skip:
            skip = False
        else:
            kept.append(shlex.quote(argument))
    return kept
