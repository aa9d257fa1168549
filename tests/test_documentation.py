"""What the documentation shows is run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import friendly_sam
from friendly_sam import compat

ROOT = Path(__file__).resolve().parents[1]
CORE = [
    name
    for _, name, is_package in pkgutil.iter_modules(friendly_sam.__path__, "friendly_sam.")
    if not is_package
]


def test_the_code_of_the_readme_runs():
    """The blocks are one script: later ones use what earlier ones define."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    scope = {}
    for block in blocks:
        exec(block, scope)
    assert torch.isfinite(scope["loss"])


@pytest.mark.parametrize("module", CORE)
def test_the_examples_of_the_docstrings_run(module):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, _ = doctest.testmod(importlib.import_module(module), optionflags=flags)
    assert failed == 0


@pytest.mark.parametrize("name", friendly_sam.__all__)
def test_every_public_name_is_documented_with_an_example(name):
    documentation = getattr(friendly_sam, name).__doc__
    assert documentation
    abstract = name in ("Direction", "Geometry", "Descent", "Policy", "Perturbation")
    assert abstract or "Example:" in documentation


@pytest.mark.parametrize("name", ["SAM", "FriendlySAM"])
def test_the_old_interfaces_are_documented_with_an_example(name):
    assert "Example:" in getattr(compat, name).__doc__
