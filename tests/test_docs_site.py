"""The documentation names what is there: pages, public names, the places of the equations."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PUBLIC = [
    "friendly_sam",
    "friendly_sam.compat",
    "friendly_sam.sharpness",
    "friendly_sam.integrations.lightning",
    "friendly_sam.integrations.transformers",
]
REFERENCE = "\n".join(page.read_text() for page in DOCS.glob("api/*.md"))
PAPER = (DOCS / "paper-to-code.md").read_text()
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def navigation(entry):
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in navigation(value)]


PAGES = navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])


@pytest.mark.parametrize("page", PAGES)
def test_the_page_of_the_navigation_is_there(page):
    assert (DOCS / page).is_file()


@pytest.mark.parametrize("page", ["../README.md", "../CONTRIBUTING.md", *PAGES])
def test_the_links_of_the_page_lead_somewhere(page):
    source = (DOCS / page).resolve()
    links = [link for link in LINK.findall(source.read_text()) if "://" not in link]
    pictures = {".png", ".svg"}  # a source distribution leaves them out
    missing = [link for link in links if not (source.parent / link).exists()]
    assert [link for link in missing if Path(link).suffix not in pictures] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module):
    if module == "friendly_sam.integrations.transformers":
        pytest.importorskip("transformers")
    names = importlib.import_module(module).__all__
    assert [name for name in names if f"::: {module}.{name}\n" not in REFERENCE] == []


def test_the_reference_names_nothing_else():
    for path in re.findall(r"^::: (\S+)$", REFERENCE, re.MULTILINE):
        module, _, name = path.rpartition(".")
        assert module in PUBLIC
        assert name in importlib.import_module(module).__all__


def find(path):
    """The object that a dotted path names: as much of it as possible is a module."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(friendly_sam\.[\w.]+)`", PAPER))))
def test_the_place_of_an_equation_is_there(path):
    assert find(path) is not None


def test_every_experiment_of_the_paper_is_on_the_map():
    from friendly_sam.lab.paper.experiments import EXPERIMENTS

    of_our_own = {
        "theory",
        "ascent-fraction",
        "relatives",
        "cheaper",
        "long-training",
        "transfer-noise",
    }
    assert [name for name in set(EXPERIMENTS) - of_our_own if f"`{name}`" not in PAPER] == []


def test_the_site_builds_strictly_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="`make docs` installs it")
    if not (DOCS / "images").is_dir():
        pytest.skip("a source distribution leaves the pictures out")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    fetched = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="https?:|<link[^>]*\shref="https?:')
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    assert [page.name for page in pages if fetched.search(page.read_text())] == []
    assert "<math" in (tmp_path / "paper-to-code.html").read_text()
