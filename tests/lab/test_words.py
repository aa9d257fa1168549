"""The lab speaks the language of the field: words that the paper does not use stay out."""

import ast
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


COUNTED = re.compile(
    r"^ (training |data )?(runs|experiments|workers|seeds|groups|processes|threads|trials|epochs|"
    r"steps|images|figures|rounds|batches|sets|classes|rows|\w+\(e?s\))(?!\w)"
)


def plurals_of_a_number(text):
    """What an f-string says right behind a number that may be 1: `{n} runs`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            for value, then in zip(node.values, node.values[1:]):
                if isinstance(value, ast.FormattedValue) and isinstance(then, ast.Constant):
                    name = ast.unparse(value.value)
                    words = COUNTED.search(str(then.value))
                    if words and not name.isupper() and "counted" not in name:
                        found.append(f"{{{name}}}{words[0]}")
    return found


@pytest.mark.parametrize("path", sorted(LAB.rglob("*.py")), ids=lambda p: str(p.relative_to(LAB)))
def test_one_run_is_not_called_1_runs(path):
    assert plurals_of_a_number(path.read_text()) == [], "lab.counting.counted has the singular"


def test_the_search_for_such_plurals_finds_them():
    assert plurals_of_a_number('f"{n} runs and {len(x)} process(es), {WIDE} trials"') == [
        "{n} runs",
        "{len(x)} process(es)",
    ]
