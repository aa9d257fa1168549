"""Attack the core: `make attack`.

20,000 timed signals over every form of a step, a signal at every opcode of the library for each
form, and 6,000 damaged state dicts. Prints a table and exits with 1 if anything is wrong.
"""

import argparse
import signal
import sys
import time
import warnings
from collections import Counter
from random import Random

import torch
from family import FAMILY
from injector import Attack, Tally
from state_fuzz import (
    BASE_NAMES,
    METHODS,
    SCHEDULE,
    all_damages,
    start,
    try_damages,
    try_schedule,
)
from step_forms import FORMS, form_of

COLUMNS = ("weights", "flags", "handlers", "EMA", "stuck")
TIMED, STATE_DICTS = 20_000, 6_000


def attacks():
    """Every form with F-SAM, and every recipe."""
    yield from ((form, "F-SAM") for form in FORMS)
    yield from ((form_of(i), recipe) for i, recipe in enumerate(FAMILY))


def line(name, tally):
    wrong = "".join(f"{tally.wrong[column]:>10}" for column in COLUMNS)
    print(f"{name:<46}{tally.hits:>8}{wrong}", flush=True)
    for place in tally.places:
        print(f"    {place}")


def signals(hits):
    """Timed signals and opcodes; returns all that came out."""
    total, pairs = [], list(attacks())
    print(f"{'form':<46}{'hits':>8}" + "".join(f"{column:>10}" for column in COLUMNS))
    for form, recipe in pairs:
        attack = Attack(form, recipe)
        for number in (signal.SIGINT, signal.SIGALRM):
            tally = attack.timed(number, hits // (2 * len(pairs)) + 1)
            line(f"{form}, {recipe}, {number.name}", tally)
            total.append(tally)
    timed = sum(tally.hits for tally in total)
    for form in FORMS:
        attack = Attack(form)
        for number in (signal.SIGINT, signal.SIGUSR1):
            tally = attack.at_opcodes(number, last=True)
            line(f"{form}, every opcode, {number.name}", tally)
            total.append(tally)
    every = Tally(sum(tally.hits for tally in total))
    for tally in total:
        every.wrong.update(tally.wrong)
    line(f"all ({timed} timed)", every)
    return every


def state_dicts(count, seed):
    """Damaged state dicts; returns how many came out in which way."""
    chance, found, shown = Random(seed), Counter(), 0
    kinds = [(method, base) for method in METHODS for base in BASE_NAMES]
    pool = {kind: all_damages(start(*kind)[1].state_dict()) for kind in kinds}
    for number in range(count):
        if number % 20 == 0:
            damage = chance.sample(SCHEDULE, chance.randint(1, 2))
            result = try_schedule(damage)
        else:
            kind = chance.choice(kinds)
            damage = chance.sample(pool[kind], chance.choice((1, 1, 2, 3)))
            result = try_damages(*kind, damage)
        found[result if result in ("refused", "loaded") else "wrong"] += 1
        if result not in ("refused", "loaded") and shown < 20:
            shown += 1
            print(f"    {damage}: {result}")
    print(f"state dicts: {dict(found)}")
    return found


def main():
    """Run both and say whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timed", type=int, default=TIMED)
    parser.add_argument("--state-dicts", type=int, default=STATE_DICTS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    clock = time.perf_counter()
    every = signals(given.timed)
    found = state_dicts(given.state_dicts, given.seed)
    print(f"{time.perf_counter() - clock:.0f} s")
    return 1 if every.wrong or found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
