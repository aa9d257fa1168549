"""Bad inputs by hypothesis, thousands of them: a part of `make attack`.

Command lines, YAML, every JSON file of a run, checkpoints, and data. Each ends with exit code 0, 1
or 2 and at most one line on stderr, within 20 seconds and 4 GB, with nothing changed outside of the
output folder. Prints a table and exits with 1 if anything is wrong.

    python tests/lab/hostile.py --count 10000 --seed 0
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from attack_page import RAM, publish
from bad_checkpoints import checkpoints
from bad_data import data_sets
from bad_lines import command_lines
from bad_records import records
from bad_yaml import yaml_files
from fork_server import warm_up
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from material import make_material
from sandbox import Ending, attempt, copied, empty

KINDS: dict[str, tuple[float, Callable[[Path], st.SearchStrategy[Callable[[Path], list[str]]]]]] = {
    "command lines": (0.3, command_lines),
    "YAML": (0.35, yaml_files),
    "JSON files of runs": (0.2, records),
    "checkpoints": (0.1, checkpoints),
    "data": (0.05, data_sets),
}
"""Each kind: its share, and from the material to inputs, which set up a place and are arguments."""


ENDINGS = {0: "went on", 2: "refused, one line", 1: "failed, one line"}
COLUMNS = ("tried", "in a fresh process too", *ENDINGS.values(), "wrong")
HEADER = f"| bad input | {' | '.join(COLUMNS)} |"
FRESH_EVERY = 400
"""One input of so many is tried in a fresh process too, which must end alike."""


class Table:
    """Counts what came of the inputs of each kind."""

    def __init__(self, page: Path | None) -> None:
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.wrong: list[str] = []
        self.page = page

    def note(self, kind: str, ending: Ending, arguments: list[str]) -> None:
        """Count one ending."""
        self.counts[kind]["tried"] += 1
        if self.counts[kind]["tried"] % 100 == 0:
            print(f"{kind}: {self.counts[kind]['tried']}", flush=True)
            self.publish()  # so that a run that is stopped has not been for nothing
        if ending.wrong is None:
            self.counts[kind][ENDINGS[ending.code]] += 1
            return
        self.counts[kind]["wrong"] += 1
        line = f"{kind}: {ending.wrong}: {arguments!r:.300}: {ending.said[-600:]!r}"
        self.wrong.append(line)
        print(line, flush=True)

    def compare(self, kind: str, forked: Ending, fresh: Ending, arguments: list[str]) -> None:
        """Note whether a fresh process ended as a fork did."""
        self.counts[kind]["in a fresh process too"] += 1
        if (forked.code, forked.said) != (fresh.code, fresh.said):
            both = replace(fresh, wrong=f"another ending in a fresh process, not {forked}")
            self.note(kind, both, arguments)

    def publish(self) -> None:
        """Put the table into its page, if there is one."""
        if self.page is not None:
            publish(self.page, "bad inputs", HEADER, self.rows())

    def rows(self) -> list[str]:
        """Return a line for each kind that was tried."""
        return [
            f"| {kind} | {' | '.join(f'{counts[column]:,}' for column in COLUMNS)} |"
            for kind, counts in self.counts.items()
            if counts["tried"]
        ]


def attack(
    kind: str, count: int, number: int, material: Path, place: Path, table: Table, end: float
) -> None:
    """Try `count` inputs of one kind, or as many as fit before `end`."""
    inputs = KINDS[kind][1](material)

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def one(prepare: Callable[[Path], list[str]]) -> None:
        if time.monotonic() > end:
            return
        arguments = prepare(empty(place))
        again = table.counts[kind]["tried"] % FRESH_EVERY == 0
        if again:
            kept = copied(place, "kept")
        ending = attempt(place, arguments)
        table.note(kind, ending, arguments)
        if again:
            shutil.rmtree(place)
            kept.rename(place)
            table.compare(kind, ending, attempt(place, arguments, fresh=True), arguments)

    one()


def main() -> int:
    """Try all of it, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="stop after these, each kind after its share",
    )
    parser.add_argument("--page", type=Path, help="put the table into this page")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    warm_up()
    table, began = Table(options.page), time.monotonic()
    with tempfile.TemporaryDirectory(dir=RAM) as name:
        material = make_material(Path(name))
        shares, given = sum(KINDS[kind][0] for kind in options.kinds), 0.0
        for kind in options.kinds:
            given += KINDS[kind][0] / shares
            count = max(1, round(options.count * KINDS[kind][0]))
            end = began + options.seconds * given
            attack(kind, count, options.seed, material, Path(name, "place"), table, end)
            table.publish()
    print(HEADER, *table.rows(), sep="\n")
    print(f"{time.monotonic() - began:.0f} s, seed {options.seed}")
    return int(bool(table.wrong))


if __name__ == "__main__":
    sys.exit(main())
