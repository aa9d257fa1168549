"""Bad command lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st
from lab_runs import tiny_config

from friendly_sam.lab.cli.dispatch import COMMANDS
from friendly_sam.lab.config.yaml import flatten

SETTINGS = [f"--{name}" for name in flatten(tiny_config(Path("run")))]
OPTIONS = [
    *SETTINGS,
    "--preset",
    "--config",
    "--resume",
    "--radii",
    "--seeds",
    "--workers",
    "--list",
    "--scale",
    "--grid",
    "--images",
    "--rho",
    "--tolerance",
    "--extent",
    "--mode",
    "--rounds",
    "--threads",
    "--device",
    "--fresh",
    "--slurm",
    "--cluster",
    "--data-root",
    "--unknown",
    "--trust-remote-code",
    "--data",
    "--overwrite",
    "--trials",
]
VALUES = [
    "0",
    "-1",
    "1",
    "2",
    "7",
    "nan",
    "inf",
    "1e999",
    "1e30",
    "9" * 400,
    "9" * 5000,
    "x",
    "",
    "é",
    "2147483648",
    "9223372036854775808",
    "a/b",
    "../..",
    "/dev/zero",
    "/dev/stdin",
    "/etc/passwd",
    "fifo",
    "[1",
    "[[1]]",
    "{a: 1}",
    "&a [*a]",
    "null",
    "true",
    "os.system",
    "digits",
    "cnn",
    "fsam",
    "sam",
    "base",
    "hf:nowhere",
    "hf:.",
    "timm:x",
    "\x1b[2J",
    "a" * 5000,
    "=",
    "--",
    "-",
    "mini",
    "table1",
    "0.1",
    "bf16",
    "adamw",
    "meta",
    "cuda:9",
    "$HOME",
    "~",
    "a::b",
]
HEAVY = ("demo", "reproduce", "bench", "selftest", "tune")
TINY = [
    "--data.train_size",
    "40",
    "--data.test_size",
    "20",
    "--data.batch_size",
    "20",
    "--epochs",
    "1",
    "--engine.threads",
    "1",
    "--engine.device",
    "cpu",
    "--engine.tensorboard",
    "false",
]


def command_lines(_: Path) -> st.SearchStrategy[Callable[[Path], list[str]]]:
    """Options and values at random, after a few that keep a run small."""
    words = st.lists(
        st.tuples(st.sampled_from(OPTIONS), st.sampled_from(VALUES), st.booleans()), max_size=4
    )
    return st.builds(_line, st.sampled_from([*COMMANDS, "train", "train", "", "traim"]), words)


def _line(command: str, words: list[tuple[str, str, bool]]) -> Callable[[Path], list[str]]:
    arguments = [command, *(TINY if command in ("train", "find-rho") else [])]
    for option, value, joined in words:
        arguments += [f"{option}={value}"] if joined else [option, value]
    if command in HEAVY:
        arguments.append("--unknown-too")  # these would start hours of work

    def prepare(place: Path) -> list[str]:
        import os

        os.mkfifo(place / "work" / "fifo")
        return arguments

    return prepare
