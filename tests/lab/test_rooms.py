"""The order of the lab's rooms: each package has a rank and imports only from below it."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import friendly_sam

PACKAGE = Path(friendly_sam.__file__).parent
ORDER = (
    "errors", "counting", "terminal", "torchrun", "trust", "files", "reading", "memory",
    "statistics", "config", "data", "models", "records", "training", "runner", "search",
    "plotting", "report", "sharpness", "paper", "bench", "promises", "cli", "__main__",
)  # fmt: skip
"""From the ground up: a room may import the ones before it."""


def module_of(path):
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(tree):
    """Every module of this package that a syntax tree imports, also inside of functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def without_types_only(tree):
    """Drop `if TYPE_CHECKING:`, which imports nothing when the program runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
            node.body = [] if node.test.id == "TYPE_CHECKING" else node.body
    return tree


def room(module):
    """The room of a module of the lab; `None` for what is not in the lab, or is the lab itself."""
    names = module.split(".")
    return names[2] if names[:2] == ["friendly_sam", "lab"] and len(names) > 2 else None


LAB = [module for module in MODULES if room(module)]


@pytest.mark.parametrize("module", LAB)
def test_a_room_imports_only_what_lies_below_it(module):
    own = ORDER.index(room(module))
    found = {room(name) for name in imports(ast.parse(MODULES[module].read_text()))} - {None}
    assert [name for name in found if ORDER.index(name) > own] == []


def test_every_room_has_a_rank_and_every_rank_a_room():
    assert {room(module) for module in LAB} == set(ORDER)


def test_no_modules_of_the_lab_import_each_other_in_a_circle():
    graph = {}
    for module in LAB:
        tree = without_types_only(ast.parse(MODULES[module].read_text()))
        graph[module] = {name for name in imports(tree) if room(name)} - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_circle_is_seen():
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


CORE = [module for module in MODULES if not module.startswith("friendly_sam.lab")]


@pytest.mark.parametrize("module", CORE)
def test_nothing_outside_of_the_lab_imports_it_but_the_registry_of_methods(module):
    names = imports(ast.parse(MODULES[module].read_text()))
    found = {name for name in names if name.startswith("friendly_sam.lab")}
    allowed = {"friendly_sam.lab.config.methods"} if "integrations" in module else set()
    assert found <= allowed


@pytest.mark.parametrize("name", [name for name in ORDER if (PACKAGE / "lab" / name).is_dir()])
def test_every_room_says_what_is_in_it_and_what_it_may_import(name):
    words = ast.get_docstring(ast.parse((PACKAGE / "lab" / name / "__init__.py").read_text()))
    assert words
    assert "import" in words


def tree_of_contributing():
    """The folders and top-level files of the lab, as CONTRIBUTING draws them."""
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    lines = text.partition("      lab/ ")[2].splitlines()[1:]
    found, above = set(), ""
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if depth not in (8, 10):
            break
        name = line.split()[0].rstrip("/")
        if depth == 8:
            above = name
        found.add(name if depth == 8 else f"{above}/{name}")
    return found


def test_the_tree_in_contributing_is_that_of_the_folders():
    lab = PACKAGE / "lab"
    folders = {p.parent.relative_to(lab).as_posix() for p in lab.rglob("__init__.py")} - {"."}
    files = {p.name for p in lab.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert tree_of_contributing() == folders | files
