"""Bad inputs by hypothesis, thousands of them: a part of `make attack`.

Command lines, YAML, every JSON file of a run, checkpoints, and data. Each ends with exit code 0, 1
or 2 and at most one line on stderr, within 20 seconds and 4 GB, with nothing changed outside of the
output folder. Prints a table and exits with 1 if anything is wrong.

    python tests/lab/hostile.py --count 10000 --seed 0
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from bad_checkpoints import checkpoints
from bad_data import data_sets
from bad_lines import command_lines
from bad_records import records
from bad_yaml import yaml_files
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from sandbox import Ending, attempt, fresh
from warm import warm_up

KINDS: dict[str, tuple[float, Callable[[Path], st.SearchStrategy[Callable[[Path], list[str]]]]]] = {
    "command lines": (0.3, command_lines),
    "YAML": (0.3, yaml_files),
    "JSON files of runs": (0.25, records),
    "checkpoints": (0.05, checkpoints),
    "data": (0.1, data_sets),
}
"""Each kind: its share, and from the material to inputs, which set up a place and are arguments."""


class Table:
    """Counts what came of the inputs of each kind."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.wrong: list[str] = []

    def note(self, kind: str, ending: Ending, arguments: list[str]) -> None:
        """Count one ending."""
        known = {0: "went on", 1: "failed, one line", 2: "refused, one line"}
        self.counts[kind]["tried"] += 1
        if self.counts[kind]["tried"] % 500 == 0:
            print(f"{kind}: {self.counts[kind]['tried']}", flush=True)
        if ending.wrong is None:
            self.counts[kind][known[ending.code]] += 1
            return
        self.counts[kind]["wrong"] += 1
        line = f"{kind}: {ending.wrong}: {arguments!r:.300}: {ending.said[-600:]!r}"
        self.wrong.append(line)
        print(line, flush=True)

    def __str__(self) -> str:
        columns = ("tried", "went on", "refused, one line", "failed, one line", "wrong")
        rows = [*self.counts.items(), ("all", sum(self.counts.values(), Counter()))]
        lines = [f"| bad input | {' | '.join(columns)} |", "|---" * 6 + "|"]
        lines += [f"| {k} | {' | '.join(f'{c[x]:,}' for x in columns)} |" for k, c in rows]
        return "\n".join(lines)


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
        arguments = prepare(fresh(place))
        table.note(kind, attempt(place, arguments), arguments)

    one()


def main() -> int:
    """Try all of it, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after these")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    table, began = Table(), time.monotonic()
    end = began + options.seconds
    with tempfile.TemporaryDirectory() as name:
        material = warm_up(Path(name))
        for kind in options.kinds:
            count = max(1, round(options.count * KINDS[kind][0]))
            attack(kind, count, options.seed, material, Path(name, "place"), table, end)
    print(table)
    print(f"{time.monotonic() - began:.0f} s, seed {options.seed}")
    return int(bool(table.wrong))


if __name__ == "__main__":
    sys.exit(main())
