"""`bench.json`, and what is made from it: tables, a Markdown page, figures.

A part that is measured again replaces what the file had of it; other parts stay. So a long
benchmark can be done in pieces, whenever the machine is quiet.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from friendly_sam.lab.bench.figures import draw_all
from friendly_sam.lab.bench.shapes import TITLES
from friendly_sam.lab.bench.tables import tables
from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.reading import read_json_object
from friendly_sam.lab.records.environment import environment
from friendly_sam.lab.report.tables import markdown_table as markdown_table
from friendly_sam.lab.report.tables import plain_table

FILE = "bench.json"
Parts = dict[str, Any]


def read(folder: Path) -> Parts:
    """What was measured before; empty where nothing was."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        parts: Parts = read_json_object(path)["parts"]
        tables(parts)
    except Exception as error:  # whatever the tables of a file of others lead to
        raise LabError(f"{path} is damaged or of another version: delete it") from error
    return parts


def add(parts: Parts, name: str, found: dict[str, Any]) -> Parts:
    """The parts with a new one; networks are kept one by one."""
    old = parts.get(name, {})
    if name in ("arithmetic", "device") and old:
        networks = {**old["networks"], **found["networks"]}
        found = {**found, "networks": {n: networks[n] for n in TITLES if n in networks}}
    return {**parts, name: {**found, "environment": environment()}}


def write(parts: Parts, folder: Path) -> list[Path]:
    """Write JSON, page and pictures; return the paths of the first two."""
    folder.mkdir(parents=True, exist_ok=True)
    record, page = folder / FILE, folder / "README.md"
    write_atomically(record, json.dumps({"parts": parts}, indent=1) + "\n")
    captions = draw_all(parts, folder)
    write_atomically(page, markdown(parts, captions))
    return [record, page]


def text(parts: Parts) -> str:
    """All tables, for the terminal."""
    return "\n\n".join(
        f"{name}\n{note}\n\n{plain_table(table)}" for name, note, table in tables(parts)
    )


def markdown(parts: Parts, captions: dict[str, str]) -> str:
    """The page."""
    machine = next(iter(parts.values()))["environment"]
    versions = {k: v for k, v in parts.get("arithmetic", {}).get("versions", {}).items() if v}
    packages = {"torch": machine["packages"].get("torch", "?"), **versions}
    lines = [
        "# Benchmark",
        f"{counted(machine['cores'], 'core')}, {machine['processor']}; "
        f"Python {machine['python']}, "
        + ", ".join(f"{name} {version}" for name, version in packages.items())
        + ".",
        "Everything that is compared took turns in one process (memory and processes aside). A "
        "time is the median over rounds with its quartiles.",
    ]
    made = {
        name: "fsam bench " + " ".join(part["environment"]["arguments"][1:])
        for name, part in parts.items()
    }
    commands = sorted({re.sub(r" --output \S+", "", command) for command in made.values()})
    lines.append("```\n" + "\n".join(commands) + "\n```")
    lines += [f"![{caption}]({name}.svg)" for name, caption in captions.items()]
    for name, note, table in tables(parts):
        lines += [f"## {name}", note, markdown_table(table)]
    return "\n\n".join(lines) + "\n"
