"""The lab speaks the language of the field: words that the paper does not use stay out."""

import re
from pathlib import Path

import pytest

import friendly_sam

LAB = Path(friendly_sam.__file__).parent / "lab"
NOT = {
    r"\bclimb": "perturb, ascend",
    r"\bball\b": "neighbourhood",
    r"moving average|running mean": "EMA",
    r"take[sn]?_in\b": "update",
    r'"""Give |[;,] give ': "Return",
    r"Tell whether": "Whether",
    r"surroundings": "landscape",
    r"no meaning": "does not apply to",
    r"told apart": "distinguished, no significant difference",
    r"\bone a (core|run|seed)\b": "one per",
}
ALLOWED = {"Give both passes", "Give every process", "Give a run its folder", "Give out runs"}


@pytest.mark.parametrize("path", sorted(LAB.rglob("*.py")), ids=lambda p: str(p.relative_to(LAB)))
def test_the_words_are_those_of_the_field(path):
    text = path.read_text()
    for words in ALLOWED:
        text = text.replace(words, "")
    found = {word: better for word, better in NOT.items() if re.search(word, text)}
    assert found == {}
