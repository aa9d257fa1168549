"""The examples run, every public name is explained, and the core does without this package."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from friendly_sam import sharpness

MODULES = [
    name for _, name, _ in pkgutil.iter_modules(sharpness.__path__, "friendly_sam.sharpness.")
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_the_docstrings_run(module):
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert failed == 0


@pytest.mark.parametrize("name", sharpness.__all__)
def test_every_public_name_is_documented(name):
    assert getattr(sharpness, name).__doc__


def test_the_code_of_the_guide_runs():
    """The blocks are one script: later ones use what earlier ones define."""
    guide = Path(__file__).resolve().parents[2] / "docs" / "sharpness" / "README.md"
    if not guide.exists():
        pytest.skip("the documentation is not here")
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    scope = {}
    for block in blocks:
        exec(block, scope)
    assert scope["top"].converged
    assert 0 <= scope["found"].full_share <= 1


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_the_core_does_not_import_it_and_it_needs_torch_only():
    code = (
        "import sys, friendly_sam\n"
        "assert not any('sharpness' in m for m in sys.modules)\n"
        "for name in ('matplotlib', 'scipy', 'curvlinops'): sys.modules[name] = None\n"
        "import friendly_sam.sharpness"
    )
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_a_missing_extra_gives_the_command_to_install_it():
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None\n"
        "from friendly_sam.sharpness.canvas import render\n"
        "try: render(lambda a, i: None, kind='png')\n"
        "except ImportError as error: print(error)"
    )
    assert 'pip install ".[sharpness]"' in run(code).stdout
