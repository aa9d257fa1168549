"""The remedies that `make mutants` takes away are there, and so are the tests that hold them."""

from __future__ import annotations

from collections import Counter

import pytest
from break_promises import ROOT, Break
from break_remedies import REMEDIES


@pytest.mark.parametrize("change", REMEDIES, ids=lambda change: change.promise)
def test_what_is_to_be_broken_is_there_once(change: Break) -> None:
    text = (ROOT / "friendly_sam" / change.file).read_text()
    assert text.count(change.old) == 1
    file, _, name = change.test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / "tests" / file).read_text()


def test_every_line_of_the_attack_has_remedies_with_names_of_their_own() -> None:
    assert max(Counter(change.promise for change in REMEDIES).values()) == 1
    lines = {int(change.promise.split()[0]) for change in REMEDIES}
    assert lines == set(range(1, 15)) - {10}  # which is a page: test_security holds it
