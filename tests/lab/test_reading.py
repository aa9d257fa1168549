"""Files of others: read within bounds, or refused in one line that names the file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from friendly_sam.lab.errors import LabError, printable
from friendly_sam.lab.reading import (
    checked,
    open_regular,
    read_bytes,
    read_json,
    read_json_lines,
    read_json_object,
    regular_size,
)


def test_a_fifo_a_device_a_folder_and_a_dangling_link_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    began = time.monotonic()
    for name, reason in (
        ("fifo", "it is a FIFO"),
        ("zero", "it is a device"),
        ("dangling", "No such file"),
        ("folder", "it is a folder"),
        ("a\0b", "null"),
    ):
        for read in (regular_size, open_regular, read_bytes, read_json, read_json_lines):
            with pytest.raises(LabError, match=reason) as refusal:
                read(tmp_path / name)
            assert str(tmp_path / name) in str(refusal.value)
    assert time.monotonic() - began < 5


def test_a_file_replaced_by_another_kind_before_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("friendly_sam.lab.reading.regular_size", lambda _: 0)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("zero", "fifo"):
        with pytest.raises(LabError, match=f"{name}: it is not a regular file"):
            open_regular(tmp_path / name)


def test_a_file_is_read_up_to_a_limit_and_not_beyond(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.truncate(10 << 40)  # ten terabytes that take no room
    with pytest.raises(LabError, match=r"10,995,116,277,760 bytes, and at most 100 are read"):
        read_bytes(path, limit=100)
    path.write_bytes(b"x" * 100)
    assert read_bytes(path, limit=100) == b"x" * 100


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 50 + b"1" + b"}" * 50, b"9" * 400,
     b"9" * 10_000, b"-" + b"9" * 30, b'"\\ud800"', b'{"\\udfff": 1}', b"{} {}", b"1e308",
     b"[-2e100]"],
)  # fmt: skip
def test_json_that_is_damaged_deep_or_huge_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(LabError, match=r"x\.json is damaged"):
        read_json(path)


def test_json_lines_are_mappings_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert read_json_lines(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n[]\n')
    with pytest.raises(LabError, match="line 2 is damaged: a list, not a mapping"):
        read_json_lines(path)
    path.write_text("[1]")
    with pytest.raises(LabError, match="it holds a list, not a mapping"):
        read_json_object(path)


SHAPE = {"n": int, "x": [float], "inner": {"name": str}, "either": (float, None.__class__)}
GOOD: dict[str, Any] = {"n": 1, "x": [1, 2.5], "inner": {"name": "a"}, "either": None}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"n": 1.5}, "n holds a number, not a whole number"),
        ({"n": True}, "n holds true or false"),
        ({"x": [1, None]}, r"x\[1\] holds null, not a number"),
        ({"x": 3}, "x holds a whole number, not a list"),
        ({"inner": {}}, "inner.name is missing"),
        ({"inner": [1]}, "inner holds a list, not a mapping"),
        ({"either": "a"}, "either holds text"),
    ],
)
def test_values_of_another_shape_are_named(change: dict[str, Any], problem: str) -> None:
    assert checked(GOOD, SHAPE, "a.json") is GOOD
    with pytest.raises(LabError, match=f"a.json is damaged: {problem}"):
        checked(GOOD | change, SHAPE, "a.json")


def test_control_characters_are_spelt_out_and_the_rest_is_left() -> None:
    assert printable("ρ = 0.1\u3000é\n") == "ρ = 0.1\u3000é\n"
    assert printable("\x1b[2J\x9b1m\r\u202e\ud800") == r"\x1b[2J\x9b1m\r\u202e\ud800"
