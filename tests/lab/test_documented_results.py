"""Every interval in the documentation is that of a record: a mean or a paired difference."""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path

import pytest

from friendly_sam.lab.paper.tuned_record import read_records
from friendly_sam.lab.statistics import Interval, interval, paired_difference

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/results/README.md",
    "docs/when-it-helps.md",
    "docs/tutorials/label-noise.md",
    "docs/tutorials/fine-tuning.md",
)
INTERVAL = re.compile(r"([+-]?\d+\.\d+)\*{0,2} \[([+-]?\d+\.\d+)(?:,| to) ([+-]?\d+\.\d+)\]")


@functools.cache
def known() -> set[tuple[str, str, str]]:
    """Return mean, low and high of every accuracy and difference, with one and two digits."""
    found: list[Interval | None] = []
    for path in (ROOT / "docs" / "results").rglob("*.json"):
        for record in read_records(path):
            for epoch in ("last", "preferred"):
                scores = [getattr(entry, epoch) for entry in record.entries]
                found += [interval(list(one.values())) for one in scores if len(one) > 1]
                found += [paired_difference(*pair) for pair in itertools.permutations(scores, 2)]
    return {
        (f"{one.mean:.{digits}f}", f"{one.low:.{digits}f}", f"{one.high:.{digits}f}")
        for one in found
        if one is not None
        for digits in (1, 2)
    }


def stated(text: str) -> list[tuple[str, str, str]]:
    """Return every interval that a page states, also one that goes on in the next line."""
    text = " ".join(text.split())
    return [(m[1].lstrip("+"), m[2].lstrip("+"), m[3].lstrip("+")) for m in INTERVAL.finditer(text)]


@pytest.mark.parametrize("page", PAGES)
def test_every_interval_of_a_page_is_that_of_a_record(page: str) -> None:
    found = stated((ROOT / page).read_text(encoding="utf-8"))
    assert found
    assert [one for one in found if one not in known()] == []


def test_an_interval_that_no_record_has_is_noticed() -> None:
    (one,) = stated("SAM leads by **+1.82** [+0.99, +2.64] points")
    assert one in known()
    assert stated("by +1.83 [+0.99,\n+2.64]")[0] not in known()
