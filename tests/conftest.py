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
