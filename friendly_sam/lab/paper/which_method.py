"""The page "Which one should I use?": its tables, made of the records of tuned experiments.

    python -m friendly_sam.lab.paper.which_method docs

reads `docs/results/**/*.json` and rewrites what stands between the marks of `docs/which-method.md`;
the rest of the page is written by hand and holds no result.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean

from friendly_sam.lab.counting import counted
from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.paper.chapters.tuned import (
    accuracy_table,
    against_table,
    caption,
    with_interval,
)
from friendly_sam.lab.paper.comparisons import FEW, MISSING, Against, Pair, compare
from friendly_sam.lab.paper.tuned_record import Entry, TunedRecord, read_records
from friendly_sam.lab.report.tables import Table, markdown_table

BUDGETS = (1.0, 1.1, 2.0)
"""Passes over the training images, times SGD's."""
SHOWN = 4
"""Of the methods that beat the base optimizer too."""
OPEN = "not measured yet"
SITUATIONS = ("training from scratch", "fine-tuning", "wrong labels")
MARK = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
PAGE = "which-method.md"
STUDIES = ("relatives", "cheaper")
"""Experiments that are shown whole."""
ANSWERING = (*STUDIES, "long-training", "table1", "table2", "table5", "table6", "transfer-noise")
"""Experiments whose tasks are a user's situations; others vary something else."""


def read_all(docs: Path) -> dict[Path, list[TunedRecord]]:
    """Read every record below a folder of documentation."""
    return {path: read_records(path) for path in sorted((docs / "results").rglob("*.json"))}


def tasks(records: Iterable[TunedRecord]) -> list[TunedRecord]:
    """Return one record per task: experiments of one scale and task share their runs."""
    found: dict[tuple[str, str, str], TunedRecord] = {}
    for record in records:
        if not record.entries:
            continue
        key = (record.situation, record.scale, record.task)
        known = found.get(key)
        if known is not None and known.entries[0].name != record.entries[0].name:
            continue  # over another base optimizer
        names = set() if known is None else {entry.name for entry in known.entries}
        new = [entry for entry in record.entries if entry.name not in names]
        entries = [*(known.entries if known else []), *new]
        done = {entry.name for entry in entries}
        waiting = {**(known.waiting if known else {}), **record.waiting}
        waiting = {name: cost for name, cost in waiting.items() if name not in done}
        found[key] = replace(record, entries=entries, waiting=waiting)
    every = list(found.values())
    return [r for r in every if not any(_contains(other, r) for other in every if other is not r)]


def _contains(whole: TunedRecord, part: TunedRecord) -> bool:
    """Whether another task has all runs of one, and more, or the same under a shorter name."""
    runs, others = ({e.name: e.last for e in record.entries} for record in (whole, part))
    if not others.items() <= runs.items():
        return False
    return len(runs) > len(others) or len(whole.task) < len(part.task)


def affordable(record: TunedRecord, budget: float) -> tuple[Entry | None, list[Entry]]:
    """Return the base optimizer with the highest mean that a budget allows, and the methods.

    The answer is the method with the highest mean, so the rival is picked the same way.
    """
    inside = [entry for entry in record.entries if entry.passes <= budget + 1e-9 and entry.last]
    base = record.entries[0].method
    rivals = [entry for entry in inside if entry.method == base]
    rival = max(rivals, key=lambda entry: fmean(entry.last.values()), default=None)
    return rival, [entry for entry in inside if entry.method != base]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a budget buys on a task."""

    record: TunedRecord
    budget: float
    rival: Entry | None
    """The base optimizer, with as many epochs as it does best with."""
    leads: list[Against]
    """Of all methods over the rival, the largest first."""

    @property
    def better(self) -> list[Against]:
        """List the methods that beat the rival."""
        return [lead for lead in self.leads if lead.verdict == "better"]

    @property
    def undecided(self) -> str:
        """Say what is in the way of an answer, where something ahead has no verdict."""
        ahead = (lead for lead in self.leads if lead.difference.mean > 0)
        found = next((lead for lead in ahead if lead.verdict in (MISSING, FEW)), None)
        return "" if found is None else f"{found.verdict} for {found.entry.name}"

    @property
    def missing(self) -> str:
        """Name what the budget would allow and is not tuned yet."""
        waiting = self.record.waiting.items()
        return ", ".join(name for name, cost in waiting if cost <= self.budget + 1e-9)


def answers(records: Iterable[TunedRecord]) -> list[Answer]:
    """Return what every budget buys on every task.

    What is compared in one situation at one scale is corrected for its number together, as the
    tables of that scale's experiments are.
    """
    asked = [(r, budget, *affordable(r, budget)) for r in tasks(records) for budget in BUDGETS]
    families: dict[tuple[str, str], dict[tuple[int, int], Pair]] = {}
    for record, _, rival, own in asked:
        family = families.setdefault((record.scale, record.situation), {})
        family |= {(id(m), id(rival)): (m, rival) for m in own if rival is not None}
    compared = [one for pairs in families.values() for one in compare(pairs.values())]
    found = {(id(one.entry), id(one.rival)): one for one in compared}
    return [
        Answer(
            record=record,
            budget=budget,
            rival=rival,
            leads=sorted(
                (found[key] for m in own if (key := (id(m), id(rival))) in found),
                key=lambda lead: -lead.difference.mean,
            ),
        )
        for record, budget, rival, own in asked
    ]


def answers_table(found: Sequence[Answer]) -> Table:
    """Return the answer for each situation and budget."""
    rows = []
    for situation in SITUATIONS:
        here = [answer for answer in found if answer.record.situation == situation]
        if not here:
            rows.append([situation, "any", "-", OPEN, "", "", ""])
        for _, own in groupby(here, key=lambda answer: id(answer.record)):
            rows += _merged([_row(answer) for answer in own])
    header = ["situation", "budget", "measured on", "answer", "lead over it", "also better"]
    header.append("not measured yet")
    return Table(header=header, rows=rows)


def _merged(rows: Sequence[list[str]]) -> list[list[str]]:
    """Join budgets that have one answer, and leave out those that nothing was made for."""
    found: dict[tuple[str, ...], list[str]] = {}
    for situation, budget, *rest in rows:
        if rest[1:] != [OPEN, "", "", "-"]:
            found.setdefault((situation, *rest), []).append(budget)
    return [[key[0], ", ".join(budgets), *key[1:]] for key, budgets in found.items()]


def _row(answer: Answer) -> list[str]:
    record, rival = answer.record, answer.rival
    start = [record.situation, f"{answer.budget:g}", f"{record.scale}: {record.task}"]
    missing = answer.missing or "-"
    if rival is None or not answer.leads:
        return [*start, OPEN, "", "", missing]
    if not answer.better:
        nearest = answer.leads[0]
        words = f"nothing beats the tuned {rival.name} ({with_interval(rival.last)} %)"
        if answer.undecided:
            words = f"undecided, {answer.undecided}"
        return [*start, words, f"highest: {nearest.entry.name}, {nearest}", "", missing]
    best, *others = answer.better
    words = f"{best.entry.name}: {with_interval(best.entry.last)} % against "
    words += f"{with_interval(rival.last)} % of the tuned {rival.name}"
    also = ", ".join(f"{x.entry.name} {x.difference.mean:+.2f}" for x in others[:SHOWN])
    also += f", and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return [*start, words, str(best), also or "nothing else", missing]


def sentence(found: Sequence[Answer], budget: float = 1.1) -> str:
    """Say in a sentence per task what a budget buys."""
    lines = []
    for answer in found:
        record, rival = answer.record, answer.rival
        if answer.budget != budget or rival is None or not answer.leads:
            continue
        where = f"{record.situation} ({record.scale}: {record.task}, n = {len(rival.last)})"
        best = next(iter(answer.better), answer.leads[0])
        if not answer.better and answer.undecided:
            text = f"undecided, {answer.undecided}."
        elif answer.better:
            text = f"{best.entry.name}, with a radius of its own, beats the tuned {rival.name}: "
            text += f"{best}, in points."
        else:
            text = f"stay with {rival.name} and tune it, nothing beats it; the highest is "
            text += f"{best.entry.name}: {best}, in points."
        text += f" Not measured yet: {answer.missing}." if answer.missing else ""
        lines.append(
            f"With a budget of {budget:g} times the base optimizer's passes, {where}: {text}"
        )
    return "\n\n".join(lines) or "Not measured yet."


def details(records: Mapping[Path, Sequence[TunedRecord]], docs: Path) -> str:
    """Return tables and figure of the studies of the whole family, and where the others are."""
    found, others = [], []
    for path, all_of_it in records.items():
        folder = path.parent.relative_to(docs).as_posix()
        done = [record for record in all_of_it if record.entries]
        if done and path.stem in STUDIES:
            found.append(f"### `{path.stem}` at scale {done[0].scale}")
            if (path.parent / "figures" / f"{path.stem}.svg").is_file():
                found.append(f"![Accuracy against cost]({folder}/figures/{path.stem}.svg)")
            found += [markdown_table(accuracy_table(done)), "Difference from SGD, in points:"]
            found += [markdown_table(against_table(done)), caption(done), _origin(done)]
        elif done:
            others.append(f"- `{path.stem}` at scale {done[0].scale}: [tables]({folder}/README.md)")
    if others:
        found += ["### The other experiments", "\n".join(others)]
    return "\n\n".join(found) or "Not measured yet."


def _origin(records: Sequence[TunedRecord]) -> str:
    """Say how tables were made."""
    first = records[0]
    seeds = ", ".join(map(str, sorted(first.entries[0].last)))
    waiting = [name for record in records for name in record.waiting]
    text = (
        f"Command: `{first.command}`. Seeds {seeds}; "
        f"{counted(len(first.entries[0].trials), 'trial')} each, "
    )
    text += f"with seeds {', '.join(map(str, first.search_seeds))}."
    return text + (f" Not measured yet: {', '.join(waiting)}." if waiting else "")


def fill(page: str, docs: Path) -> str:
    """Return the page with everything between its marks made again."""
    files = read_all(docs)
    records = [
        record for path, found in files.items() if path.stem in ANSWERING for record in found
    ]
    found = answers(records)
    blocks = {
        "answers": markdown_table(answers_table(found)),
        "sentence": sentence(found),
        "details": details(files, docs),
    }
    return MARK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n\n{found[3]}", page)


def refresh(docs: Path) -> None:
    """Make the tables of the page again."""
    path = docs / PAGE
    write_atomically(path, fill(path.read_text(encoding="utf-8"), docs))


if __name__ == "__main__":
    refresh(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
