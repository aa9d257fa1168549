"""`fsam list`: data sets, networks, methods and presets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from friendly_sam.lab.cli.parser import command_parser
from friendly_sam.lab.config.methods import METHODS, Method
from friendly_sam.lab.config.presets import PRESETS

KINDS = ("data", "models", "methods", "presets")


def run(arguments: Sequence[str]) -> int:
    """Run `fsam list`."""
    parser = command_parser(
        "list",
        "Data sets, networks, methods and presets, one line each.",
        "  fsam list\n  fsam list presets",
    )
    parser.add_argument("kind", nargs="?", choices=KINDS, help="only these")
    options = parser.parse_args(arguments)
    return list_all([options.kind] if options.kind else KINDS)


def list_all(kinds: Iterable[str]) -> int:
    """Print what there is, one line each."""
    for number, kind in enumerate(kinds):
        entries = _entries(kind)
        width = max(map(len, entries))
        print(("\n" if number else "") + kind)
        for name, description in entries.items():
            print(f"  {name:<{width}}  {description}")
    return 0


def _entries(kind: str) -> dict[str, str]:
    if kind == "methods":
        return {name: _method(method) for name, method in METHODS.items()}
    if kind == "presets":
        return PRESETS
    if kind == "data":
        from friendly_sam.lab.data import DATASETS

        return {name: info.description for name, info in DATASETS.items()}
    from friendly_sam.lab.models import MODELS

    others = {
        "hf:NAME": "an image classifier of Hugging Face transformers, by name or folder",
        "timm:NAME": "a network of timm, where it is installed",
    }
    return {name: info.description for name, info in MODELS.items()} | others


def _method(method: Method) -> str:
    """Return the label of a method, what it does, and its settings with their defaults."""
    given = {name: s.default for name, s in method.settings.items() if s.default is not None}
    given |= {"every": method.every.default} if method.every.default != 1 else {}
    settings = ", ".join(f"{name} {value}" for name, value in given.items())
    return f"{method.label}: {method.description}" + (f" ({settings})" if settings else "")
