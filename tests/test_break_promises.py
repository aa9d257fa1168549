"""`make mutants` takes minutes; that it still finds what it breaks is seen at once."""

from collections import Counter

import pytest
from break_promises import BREAKS, ROOT


@pytest.mark.parametrize("change", BREAKS, ids=lambda change: change.promise)
def test_what_is_to_be_broken_is_there_once(change):
    text = (ROOT / "friendly_sam" / change.file).read_text()
    assert text.count(change.old) == 1
    name = change.test.partition("::")[2].partition("[")[0]
    tests = (ROOT / "tests" / change.test.partition("::")[0]).read_text()
    assert f"def {name}(" in tests


def test_every_break_has_a_name_of_its_own():
    assert max(Counter(change.promise for change in BREAKS).values()) == 1
