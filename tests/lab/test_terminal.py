"""What reaches the terminal, and what the environment of `torchrun` may hold."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from friendly_sam.lab import torchrun
from friendly_sam.lab.cli import dispatch, main
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.terminal import printable_output


def test_escape_sequences_never_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with printable_output():
        print("a\x1b]0;title\x07b")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("two\nlines \x1b[2J", stacklevel=1)
    out, error = capsys.readouterr()
    assert out == "a\\x1b]0;title\\x07b\n"
    assert error == "fsam: warning: two lines \\x1b[2J\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_error_to_tell(unbuffered: str) -> None:
    """As in `fsam --help | true`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "friendly_sam.lab", "--help"],
        stdout=writer, stderr=subprocess.PIPE, timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_closed_stdout_is_no_error() -> None:
    """As in `fsam --help >&-`."""
    command = [sys.executable, "-m", "friendly_sam.lab", "--help"]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "-", *command], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE must be a whole number from 1 on, got 'abc'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE must be a whole number from 1 on, got '0'"),
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE must be a whole number from 1 on, got '-1'"),
        ({"WORLD_SIZE": "9" * 400}, "WORLD_SIZE must be a whole number from 1 on, got '999"),
        ({"WORLD_SIZE": "2", "RANK": "x"}, "RANK must be a whole number from 0 on, got 'x'"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK must be below WORLD_SIZE = 2, got 2"),
    ],
)
def test_a_bad_environment_is_one_line(
    variables: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["list", "methods"]) == 2
    out, error = capsys.readouterr()
    assert not out
    assert error.startswith(f"fsam: error: {message}")
    assert error.count("\n") == 1


def test_the_errors_of_a_single_process_are_told_whatever_rank_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("1", "x", "-3"):
        monkeypatch.setenv("RANK", value)
        monkeypatch.setenv("LOCAL_RANK", value)
        assert (torchrun.rank(), torchrun.local_rank()) == (0, 0)
        assert main(["fly"]) == 2
        assert "unknown command 'fly'" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    assert torchrun.rank() == 3
    monkeypatch.setenv("LOCAL_RANK", "x")
    with pytest.raises(LabError, match="LOCAL_RANK must be a whole number"):
        torchrun.local_rank()


def test_a_fault_of_ours_is_one_line_that_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, line in (
        (KeyError("x"), "internal error: KeyError: 'x' (FSAM_DEBUG=1 shows where)"),
        (MemoryError(), "out of memory"),
        (RuntimeError("a\nb" * 1000), "RuntimeError: a ba b"),
    ):

        def fail(_: object, error: Exception = error) -> int:
            raise error

        monkeypatch.setattr(dispatch, "_dispatch", fail)
        assert main([]) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"fsam: error: {line}")
        assert said.count("\n") == 1
        assert len(said) < 1100
