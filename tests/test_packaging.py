"""What is packed, what an extra brings, and what a missing one says."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import friendly_sam
from friendly_sam._machinery.install import COMMAND

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_the_wheel_is_the_package_with_its_types_and_data(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel")
    (path,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    packed = {name for name in names if ".dist-info/" not in name}
    assert all(name.startswith("friendly_sam/") for name in packed)
    assert {"friendly_sam/py.typed", "friendly_sam/lab/paper/printed_numbers.json"} <= packed
    assert not [name for name in packed if "__pycache__" in name]
    assert Path(path).stat().st_size < 1_000_000


def test_the_sdist_has_tests_and_documents_and_nothing_large(tmp_path):
    sdist = pytest.importorskip("hatchling.builders.sdist")
    (path,) = sdist.SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
    names = {member.name.partition("/")[2] for member in members}
    expected = ("README.md", "LICENSE", "CITATION.cff", "CONTRIBUTING.md", "tests/family.py")
    assert set(expected) <= names
    kinds = {Path(name).suffix for name in names} - {""}
    assert kinds <= {".py", ".md", ".toml", ".json", ".typed", ".txt", ".cff", ".yml"}
    assert max(member.size for member in members) < 300_000
    assert Path(path).stat().st_size < 1_000_000


def imported(folder):
    """The modules of other packages that the files of `folder` import anywhere in them."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"friendly_sam", "torch"}


MODULES = {"PIL": "pillow", "mlflow": "mlflow-skinny", "sklearn": "scikit-learn", "yaml": "pyyaml"}


@pytest.mark.parametrize(
    ("folder", "extras", "elsewhere"),
    [
        # timm needs torchvision and is left to the user; the last two come with datasets.
        (
            "lab",
            ["lab", "hf", "cluster", "tune", "wandb", "mlflow"],
            {"timm", "pyarrow", "huggingface_hub"},
        ),
        # torchmetrics comes with lightning.
        ("integrations", ["hf", "lightning"], {"torchmetrics"}),
        ("sharpness", ["sharpness"], set()),
    ],
)
def test_the_extras_name_what_a_part_imports(folder, extras, elsewhere):
    named = {
        requirement.partition(">")[0].partition("[")[0]
        for extra in extras
        for requirement in EXTRAS[extra]
    }
    needed = {MODULES.get(name, name) for name in imported(ROOT / "friendly_sam" / folder)}
    assert needed - elsewhere <= named


def test_all_is_every_extra():
    (everything,) = EXTRAS["all"]
    listed = everything.partition("[")[2].rstrip("]").split(",")
    assert set(listed) == set(EXTRAS) - {"all"}


def without(modules, code):
    hide = "".join(f"sys.modules[{name!r}] = None\n" for name in modules)
    return subprocess.run(
        [sys.executable, "-c", f"import sys\n{hide}{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_without_the_lab_says_in_one_line_what_to_install(tmp_path):
    code = "from friendly_sam.lab.cli import main\nsys.exit(main(['train']))"
    done = without(["yaml", "sklearn", "datasets", "rich", "jsonargparse"], code)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("fsam: error: ")
    assert 'pip install ".[lab]"' in line


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == friendly_sam.__version__
    assert f"## {friendly_sam.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_text_installs_an_extra_in_the_same_words():
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("friendly_sam/**/*.py")]
    found = {
        (path.name, line)
        for path in texts
        for line in re.findall(r"""pip install ["']?[\w.-]*\[[^\]]*\]["']?""", path.read_text())
    }
    said = {line for name, line in found if name != "install.py"}
    assert said, "the guides say how to install"
    extras = {line: line[line.index("[") + 1 : line.index("]")] for line in said}
    assert {line for line in said if line != COMMAND.format(extra=extras[line])} == set()
    assert {name for each in extras.values() for name in each.split(",")} <= set(EXTRAS)


CUDA = ("cuda-", "nvidia-", "triton")
"""What a build of torch for GPUs brings; the constraints are those of the CPU build."""


def pinned():
    """Name to version of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    return {canonicalize_name(name): version for name, version in (x.split("==") for x in lines)}


def asked_for():
    """What `make setup` and `make docs` and every extra name, by name."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    lists = [PROJECT["dependencies"], *EXTRAS.values(), *groups.values()]
    found = [Requirement(text) for each in lists for text in each]
    found += [Requirement(text) for text in ("pip", "hatchling", "editables")]
    return {canonicalize_name(r.name): r for r in found if r.name != PROJECT["name"]}


def test_constraints_are_sorted_and_have_each_name_once():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    names = [canonicalize_name(line.partition("==")[0]) for line in lines]
    assert names == sorted(set(names))


def test_constraints_pin_what_the_project_names_within_its_bounds():
    versions = pinned()
    wrong = [
        str(requirement)
        for name, requirement in asked_for().items()
        if name not in versions or not requirement.specifier.contains(versions[name])
    ]
    assert wrong == []


def test_constraints_pin_what_those_packages_need_in_turn():
    """Of the packages that are installed here; a marker or an extra decides what is needed."""
    versions, unpinned, seen = pinned(), {}, set()
    todo = [(name, frozenset(r.extras)) for name, r in asked_for().items()]
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for needed in map(Requirement, needs):
            worlds = [{**default_environment(), "extra": extra} for extra in ("", *extras)]
            if needed.marker is None or any(needed.marker.evaluate(world) for world in worlds):
                inner = canonicalize_name(needed.name)
                if inner not in versions and not inner.startswith(CUDA):
                    unpinned[inner] = name
                todo.append((inner, frozenset(needed.extras)))
    assert len(seen) > 60
    assert unpinned == {}
