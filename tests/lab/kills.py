"""Disturb the lab's commands before and after every system call that changes a file: `make attack`.

A command is killed, stopped by SIGTERM, or cut off from its disk at one such moment, then given
again until it is done. What it leaves must be what the same command leaves when nobody disturbs it,
bit for bit: the last and the best checkpoint, metrics, status, measurements. The clock stands
still, so that times are equal too. Then files of runs are damaged. Prints a table and exits with 1
if anything was lost or changed.

    python tests/lab/kills.py               # every moment
    python tests/lab/kills.py --sample 30   # as many kills of each command, spread evenly
    python tests/lab/kills.py --sample reproduce=25 tune=100   # of these, and all of the others
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from attack_page import RAM, publish
from attacked import COMMANDS, Attacked, give, give_fresh, know, left, said_file
from damage import damage_files, flip_bits
from fork_server import forked, warm_up
from system_calls import SUPPORTED, Watched, watch

COLUMNS = ("kills", "SIGTERM", "full disks", "lost", "changed", "more than a line")
HEADER = f"| command | moments | {' | '.join(COLUMNS)} |"
HOW = {"kill": "kills", "stop": "SIGTERM", "full": "full disks"}
FRESH_EVERY = 200
"""One kill of so many is tried in fresh processes, through `python -m`."""


class Target:
    """A command, where it starts from, and what it leaves when nobody disturbs it."""

    def __init__(self, attacked: Attacked, folder: Path, *, fresh: bool = False) -> None:
        self.words, self.folder, self.fresh = attacked.words, folder, fresh
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        know(attacked.before)
        know(attacked.words)
        if attacked.before:
            assert self._give(attacked.before, learn=True) == 0, self.said()
        shutil.copytree(self.out, folder / "start")
        if not fresh:
            assert self._give(self.words, learn=True) == 0, self.said()
        self.moments = self.watched(None).moments
        self.wanted = left(self.out, timed=not fresh)
        assert self.wanted

    def _give(self, words: tuple[str, ...], *, learn: bool = False) -> int:
        work = give_fresh if self.fresh else give
        return forked(lambda: work(words, self.out), learn=learn)

    def said(self) -> str:
        """Return what the last command printed on stderr."""
        return said_file(self.out).read_text().strip()

    def watched(self, moment: int | None, how: str = "kill") -> Watched:
        """Give the command from the start, and disturb it at a moment."""
        shutil.rmtree(self.out)
        shutil.copytree(self.folder / "start", self.out)
        work = give_fresh if self.fresh else give
        seen = watch(lambda: work(self.words, self.out), self.out, moment, how)
        assert moment is not None or seen.code == 0, self.said()
        return seen

    def disturb(self, moment: int, how: str) -> str:
        """Disturb at a moment, go on; return what came of it: "same", "lost", "changed", ..."""
        seen = self.watched(moment, how)
        if seen.hung:
            return "lost: it hung"
        if how == "kill" and seen.code is not None:
            return "missed"  # it ended sooner this time
        said = self.said()
        if how != "kill" and (said.count("\n") or "Traceback" in said or seen.code == 70):
            return f"more than a line: exit code {seen.code}, {said}"
        code = self._again()
        if code != 0:
            return f"lost: exit code {code}, {self.said()}"
        found = left(self.out, timed=not self.fresh)
        names = found.keys() | self.wanted.keys()
        if how == "stop":  # which writes a checkpoint that may stay as the one before the last
            names = {name for name in names if not name.endswith(", steps")}
        other = sorted(name for name in names if found.get(name) != self.wanted.get(name))
        return f"changed: {', '.join(other)}" if other else "same"

    def _again(self) -> int:
        """Give the command again, as a user would."""
        if self.words[0] != "train":
            return self._give(self.words)
        code = self._give((*(word for word in self.words if word != "--overwrite"), "--resume"))
        if code == 2 and ("--overwrite" in self.words or "there is no run" in self.said()):
            code = self._give(self.words)
        return code


def spread(moments: int, count: int | None) -> Iterator[int]:
    """Choose `count` of the moments, evenly; all of them without a count."""
    if count is None or count >= moments:
        yield from range(moments)
        return
    yield from sorted({round(k * (moments - 1) / max(1, count - 1)) for k in range(count)})


def sampled(title: str, sample: list[str]) -> int | None:
    """Return how many kills of a command were asked for; `None` for all."""
    asked = [word.rpartition("=") for word in sample]
    return next((int(count) for name, _, count in asked if name in title), None)


def plan(moments: int, count: int | None, others: int) -> Iterator[tuple[int, str]]:
    """Choose moments and what to do there: one SIGTERM and one full disk to so many kills."""
    for number, moment in enumerate(spread(moments, count)):
        yield moment, "kill"
        if number % others == 0:
            yield moment, "stop"
            yield moment, "full"


def attack(name: str, target: Target, chosen: Iterator[tuple[int, str]]) -> Counter[str]:
    """Disturb a command at the chosen moments; tell of everything that went wrong."""
    results, began = Counter[str](), time.monotonic()
    for moment, how in chosen:
        result = target.disturb(moment, how)
        kind = result.partition(":")[0]
        results[kind] += 1
        results[HOW[how]] += kind != "missed"
        if kind not in ("same", "missed"):
            where = target.moments[moment] if moment < len(target.moments) else "the end"
            print(f"    {name}, {how} {where} ({moment}): {result}", flush=True)
        if sum(results[column] for column in HOW.values()) % 25 == 0:
            print(f"{name}: {dict(results)}, {time.monotonic() - began:.0f} s",
                  file=sys.stderr, flush=True)  # fmt: skip
    return results


def row(name: str, moments: object, results: Counter[str]) -> str:
    """Return a line of the table."""
    return f"| {name} | {moments} | {' | '.join(f'{results[c]:,}' for c in COLUMNS)} |"


def main() -> int:
    """Disturb all of them, damage files, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", nargs="+", default=[], help="kills of each command, or NAME=N")
    parser.add_argument("--others", type=int, default=10, help="kills to one SIGTERM or full disk")
    parser.add_argument("--flips", type=int, default=7000)
    parser.add_argument("--damages", type=int, default=300)
    parser.add_argument("--fresh", type=int, default=5, help="kills in fresh processes")
    parser.add_argument("--only", nargs="+", help="attack the commands whose names hold these")
    parser.add_argument("--page", type=Path, help="put the table into this page")
    options = parser.parse_args()
    if not SUPPORTED:
        print("system calls are watched on Linux and x86-64 only")
        return 0
    warm_up()
    total = Counter[str]()

    def tell(section: str, header: str, line: str) -> None:
        print(line, flush=True)
        if options.page:
            publish(options.page, section, header, [line])

    chosen = {
        name: command
        for name, command in COMMANDS.items()
        if options.only is None or any(word in name for word in options.only)
    }
    with tempfile.TemporaryDirectory(dir=RAM) as name:
        folder = Path(name).resolve()
        for number, (title, attacked) in enumerate(chosen.items()):
            target = Target(attacked, folder / str(number))
            moments = len(target.moments)
            found = attack(
                title, target, plan(moments, sampled(title, options.sample), options.others)
            )
            tell("kills", HEADER, row(title, moments, found))
            total.update(found)
            shutil.rmtree(target.folder)
        if options.fresh:
            target = Target(next(iter(chosen.values())), folder / "fresh", fresh=True)
            moments = len(target.moments)
            few = ((moment, "kill") for moment in spread(moments, options.fresh))
            found = attack("fresh", target, few)
            tell("kills", HEADER, row("the first, in fresh processes", moments, found))
            total.update(found)
        for name, attack_files, count in (
            ("flipped bits", flip_bits, options.flips),
            ("damaged files", damage_files, options.damages),
        ):
            if count:
                found = attack_files(folder / name, count)
                wrong = sum(n for kind, n in found.items() if kind.startswith("wrong"))
                print(f"{name}: {dict(found)}")
                tried = f"| {name} | {count:,} | {count - wrong:,} | {wrong:,} |"
                tell("damage", "| damage | tried | right | wrong |", tried)
                total["changed"] += wrong
    return int(any(total[kind] for kind in ("lost", "changed", "more than a line")))


if __name__ == "__main__":
    sys.exit(main())
