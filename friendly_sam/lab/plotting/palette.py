"""One palette: the colours of both themes, and how each method looks in every figure.

Colours are those of Okabe and Ito (2008), safe for colour-blind readers. The registry of methods
gives each method its colour and its marker; variants of one method differ by dash, hatch and
strength, so nothing is told by colour alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from friendly_sam.lab.config.methods import BASES, METHODS, Colour

Theme = Literal["light", "dark"]
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "xx", "..")
STRENGTHS = (1.0, 0.6, 0.35)
OTHERS: tuple[Colour, ...] = (
    "black", "purple", "orange", "green", "sky", "vermilion", "blue", "grey",
)  # fmt: skip
"""The colours of what is not a method, in the order in which they are taken."""
OTHER_MARKERS = ("h", "p", "<", ">", "8", "H")


@dataclass(frozen=True)
class Ink:
    """The colours of a theme."""

    text: str
    grid: str
    ground: str
    colours: Mapping[Colour, str]

    @property
    def bound(self) -> str:
        """For what is not a measurement."""
        return self.colours["grey"]

    def all(self) -> tuple[str, ...]:
        """Return every colour that a figure can hold, in one order for both themes."""
        return self.text, self.grid, *self.colours.values()


def _colours(*codes: str) -> dict[Colour, str]:
    return dict(zip(get_args(Colour), codes, strict=True))


INKS: dict[Theme, Ink] = {
    "light": Ink(
        "#1b1f24", "#d0d7de", "#ffffff",
        _colours(
            "#5f6b76", "#d55e00", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#3a3f45"
        ),
    ),
    "dark": Ink(
        "#e6edf3", "#3d444d", "#0d1117",
        _colours(
            "#a3adb8", "#ff8a3d", "#4db2ec", "#2fd1a5", "#f2b93b", "#e39cc4", "#8fd3f7", "#c9d1d9"
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How one line, point or bar is drawn."""

    colour: Colour
    marker: str
    dash: str = "-"
    hatch: str = ""
    strength: float = 1.0


def method_look(label: str) -> Look | None:
    """Return the look of the method that a label names; `None` where it names none.

    The label may go on after the method: `F-SAM, 1/8`, `SAM at 0.2`, `F-SAM rho=0.1`.
    """
    known = {method.label: method for method in METHODS.values()}
    known |= dict.fromkeys((*BASES.values(), "/".join(BASES.values())), METHODS["base"])
    for name in (label, label.partition(",")[0], label.partition(" ")[0]):
        if name in known:
            return Look(known[name].colour, known[name].marker)
    return None


def looks(labels: Sequence[str]) -> list[Look]:
    """Return a look for each label of a figure, no two alike; a method always has its own."""
    found = [method_look(label) for label in labels]
    used: Counter[Colour] = Counter()
    result: dict[int, Look] = {}
    for index, look in enumerate(found):
        if look is not None:
            result[index] = _variant(look.colour, look.marker, used)
    others = [index for index, look in enumerate(found) if look is None]
    for number, index in enumerate(others):
        colour = min(OTHERS, key=lambda name: (used[name], OTHERS.index(name)))
        result[index] = _variant(colour, OTHER_MARKERS[number % len(OTHER_MARKERS)], used)
    return [result[index] for index in range(len(labels))]


def dashed(chosen: Sequence[Look]) -> list[Look]:
    """Return looks with dashes of their own: without markers no two may rest on colour alone."""
    used: set[tuple[Colour, str, float]] = set()
    result = []
    for number, look in enumerate(chosen):
        places = range(number, number + len(DASHES))
        dashes = [DASHES[place % len(DASHES)] for place in places]
        free = [dash for dash in dashes if (look.colour, dash, look.strength) not in used]
        found = replace(look, dash=(free or dashes)[0])
        used.add((found.colour, found.dash, found.strength))
        result.append(found)
    return result


def _variant(colour: Colour, marker: str, used: Counter[Colour]) -> Look:
    number = used[colour]
    used[colour] += 1
    strength = STRENGTHS[number // len(DASHES) % len(STRENGTHS)]
    place = number % len(DASHES)
    return Look(colour, marker, DASHES[place], HATCHES[place], strength)
