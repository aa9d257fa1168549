"""What all tests share: one thread each, a seed, and the reference data."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Elsewhere every run tries new examples; a gate should not depend on which ones it drew.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_configure(config):
    """Warnings are errors, but not those of torch about its own code."""
    for warning in (
        "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning",  # torch.compile
        "ignore:Skipping serialization of skipfiles:UserWarning",  # torch.compile of torch 2.6
    ):
        config.addinivalue_line("filterwarnings", warning)


SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def golden() -> Path:
    folder = SHARED / "golden"
    if not folder.is_dir():
        pytest.skip("the golden trajectories are not here")
    return folder
