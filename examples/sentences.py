"""Sentences with labels: those of a folder of parquet files, or docstrings that are here already.

Anything wrong with a folder ends the program with one line that says what.
"""

import ast
import importlib.util
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from friendly_sam.lab.data.parquet import count_rows, schema_of

Sentence = tuple[tuple[str, ...], int]
"""One text or a pair of them, and the number of its class."""

LABELS = ("label", "labels", "target", "class", "coarse_label", "sentiment", "category")
SPLITS = {"train": ("train",), "test": ("test", "validation", "valid", "val", "dev")}
"""Where a split's file names may start; of several for the test, the first that has labels."""
PACKAGES = ("torch", "numpy", "scipy", "sklearn")


@dataclass(frozen=True)
class Sentences:
    """What a study draws from."""

    name: str
    classes: tuple[str, ...]
    train: list[Sentence]
    test: list[Sentence]

    def drawn(
        self, size: int, noise: float, seed: int
    ) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
        """Return training, validation and test sentences; the last are the same for every seed.

        A share `noise` of the training labels is wrong: another class, drawn at random.
        """
        dice = random.Random(seed)
        chosen = dice.sample(self.train, 2 * size)
        train, validation = chosen[:size], chosen[size:]
        for row in dice.sample(range(size), round(noise * size)):
            texts, label = train[row]
            others = [other for other in range(len(self.classes)) if other != label]
            train[row] = (texts, dice.choice(others))
        return train, validation, self.test


def held_out(name: str, classes: tuple[str, ...], rows: list[Sentence], most: int) -> Sentences:
    """Hold a third out for the test, at most `most`; the same whatever the study's seeds."""
    random.Random(0).shuffle(rows)
    count = min(most, len(rows) // 3)
    return Sentences(name, classes, rows[count:], rows[:count])


def docstrings(size: int, most: int) -> Sentences:
    """Return first lines of docstrings in installed packages; the label is the package.

    Args:
        size: training sentences of a run; there are four times as many to draw from.
        most: test sentences, at most.
    """
    specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
    folders = {name: Path(spec.origin).parent for name, spec in specs.items() if spec}
    each = (4 * size + most) // len(folders) + 1
    lines: dict[str, str] = {}
    for name, folder in folders.items():
        lines |= dict.fromkeys(_first_lines(folder, each), name)
    classes = tuple(folders)
    rows = [((line,), classes.index(name)) for line, name in lines.items()]
    return held_out("docstrings of " + ", ".join(classes), classes, rows, most)


def _first_lines(folder: Path, most: int) -> list[str]:
    """Return first lines of five words or more, of functions and classes that are no tests."""
    paths = [path for path in sorted(folder.rglob("*.py")) if "test" not in path.as_posix()]
    random.Random(0).shuffle(paths)
    found: dict[str, None] = {}
    for path in paths:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        documented = (n for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef))
        firsts = ((ast.get_docstring(n) or "").strip().partition("\n")[0] for n in documented)
        found |= dict.fromkeys(line for line in firsts if len(line.split()) >= 5)
        if len(found) >= most:
            break
    return list(found)[:most]


def parquet(folder: Path, texts: list[str] | None, label: str | None, most: int) -> Sentences:
    """Return the sentences of a folder of parquet files.

    Files that start with train and test (or validation) are taken for these; of others, a third is
    held out for the test.

    Args:
        folder: the parquet files, at any depth.
        texts: one or two columns of text; None: all that hold text, if they are one or two.
        label: column of the classes, whole numbers or names; None: one that is called so.
        most: test sentences, at most.
    """
    if not folder.is_dir():
        raise SystemExit(f"there is no folder {str(folder)!r}")
    files = sorted(folder.rglob("*.parquet"))
    if not files:
        raise SystemExit(f"folder {str(folder)!r} holds no parquet files")
    columns = _columns(files[0], texts, label)
    named = {
        start: [file for file in files if file.name.lower().startswith(start)]
        for starts in SPLITS.values()
        for start in starts
    }
    read = {start: _rows(group, columns) for start, group in named.items() if group}
    train = read.get("train") or _rows(files, columns)
    test = next((read[start] for start in SPLITS["test"] if read.get(start)), None)
    if not named["train"]:
        test = None  # no division that can be trusted
    classes = tuple(sorted({value for _, value in train}))
    if len(classes) < 2:
        raise SystemExit(f"column {columns[-1]!r} of {str(folder)!r} has one class, needs two")
    numbers = {value: number for number, value in enumerate(classes)}
    rows = [(text, numbers[value]) for text, value in train]
    names = tuple(map(str, classes))
    if test is None:
        return held_out(folder.name, names, rows, most)
    known = [(text, numbers[value]) for text, value in test if value in numbers]
    random.Random(0).shuffle(known)
    return Sentences(folder.name, names, rows, known[:most])


def _columns(file: Path, texts: list[str] | None, label: str | None) -> list[str]:
    """Return the columns of text and, last, that of the labels."""
    import pyarrow as pa

    try:
        schema = schema_of(file)
    except (ValueError, OSError) as error:
        raise SystemExit(str(error)) from error
    has = f"{file.name} has the columns {', '.join(schema.names)}"
    for option, names in (("--text", texts or []), ("--label", [label] if label else [])):
        for name in names:
            if name not in schema.names:
                raise SystemExit(f"{option} {name}: no such column; {has}")
    label = label or next((name for name in LABELS if name in schema.names), None)
    if label is None:
        raise SystemExit(f"no column called {', '.join(LABELS)}: choose with --label; {has}")
    kind = schema.field(label).type
    if not (pa.types.is_integer(kind) or _is_text(kind)):
        raise SystemExit(f"labels must be whole numbers or names; column {label!r} holds {kind}")
    texts = texts or [n for n in schema.names if n != label and _is_text(schema.field(n).type)]
    if not 1 <= len(texts) <= 2:
        raise SystemExit(f"one or two columns of text are needed: choose with --text; {has}")
    for name in texts:
        if not _is_text(schema.field(name).type):
            raise SystemExit(f"--text {name}: holds {schema.field(name).type}, not text")
    return [*texts, label]


def _is_text(kind: object) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _rows(files: list[Path], columns: list[str]) -> list[tuple[tuple[str, ...], str | int]]:
    """Return texts and labels, without rows that lack one (the hub writes -1) or come twice."""
    import pyarrow as pa
    from pyarrow.parquet import read_table

    found: dict[tuple[str, ...], Counter[str | int]] = {}
    for file in files:
        try:
            count_rows(file)
            table = read_table(file, columns=columns)
        except (ValueError, OSError, KeyError, pa.ArrowException) as error:
            raise SystemExit(f"cannot read {file.name}: {str(error).splitlines()[0]}") from error
        if set(table.column_names) != set(columns):
            raise SystemExit(f"{file.name} lacks one of the columns {', '.join(columns)}")
        *texts, labels = (table.column(name).to_pylist() for name in columns)
        for *text, label in zip(*texts, labels, strict=True):
            if label is not None and label != -1 and all(text):
                found.setdefault(tuple(text), Counter())[label] += 1
    return [(text, labels.most_common(1)[0][0]) for text, labels in found.items()]
