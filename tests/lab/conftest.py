"""Fixtures of the lab's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab_runs import Fsam, Tiny, tiny_config

from friendly_sam.lab.config.schema import RunConfig


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    """Make tiny runs, each in a folder of its own."""

    def make(name: str = "run", **settings: Any) -> RunConfig:
        return tiny_config(tmp_path / name, **settings)

    return make


@pytest.fixture
def fsam(tmp_path: Path) -> Fsam:
    """Run the command in a process of its own, in an empty folder."""

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "friendly_sam.lab", *arguments],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    return run
