"""Watch a process change files, and kill it at a chosen system call (ptrace, Linux on x86-64).

Nothing of the program is patched: whatever writes, in Python or in C++, is seen.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"

WRITES = {1: "write", 18: "pwrite64", 20: "writev", 40: "sendfile", 77: "ftruncate"}
"""Calls by number that change the file of their first argument."""
CHANGES = {
    74: "fsync", 75: "fdatasync", 76: "truncate", 82: "rename", 83: "mkdir", 84: "rmdir",
    86: "link", 87: "unlink", 88: "symlink", 258: "mkdirat", 263: "unlinkat", 264: "renameat",
    316: "renameat2",
}  # fmt: skip
OPENAT, O_CREAT = 257, 0o100

_TRACEME, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
_SYSGOOD, _EXITKILL = 1, 0x100000
_ENTRY, _EXIT = 1, 2


def _ptrace(request: int, process: int, address: int = 0, data: int = 0) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return int(libc.ptrace(request, process, address, data))


@dataclass
class Watched:
    """What a watched process did."""

    code: int | None = None
    """Its exit code; `None`: it was killed where it was asked to be."""
    moments: list[str] = field(default_factory=list)
    """"before write", "after write", "before rename", ..., in order."""


def watch(work: Callable[[], int], folder: Path, kill_at: int | None = None) -> Watched:
    """Fork, do `work` in the child, and note each moment around a change of files.

    Args:
        work: returns the exit code.
        folder: writes to files outside it do not count.
        kill_at: the moment (from 0) at which the child and the processes it started are killed.
    """
    process = os.fork()
    if process == 0:
        code = 70
        try:
            os.setpgid(0, 0)
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            code = work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    os.waitpid(process, 0)
    _ptrace(_SETOPTIONS, process, 0, _SYSGOOD | _EXITKILL)
    seen, information = Watched(), ctypes.create_string_buffer(88)
    inside, deliver = None, 0
    while True:
        _ptrace(_SYSCALL, process, 0, deliver)
        status = os.waitpid(process, 0)[1]
        if not os.WIFSTOPPED(status):
            seen.code = os.waitstatus_to_exitcode(status)
            return seen
        deliver = 0 if os.WSTOPSIG(status) & 0x80 else os.WSTOPSIG(status)
        if deliver:
            continue
        _ptrace(_GET_SYSCALL_INFO, process, 88, ctypes.addressof(information))
        if information.raw[0] == _ENTRY:
            inside = _change(process, information.raw, folder)
        if inside is None:
            continue
        if kill_at == len(seen.moments):
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return seen
        seen.moments.append(f"{'before' if information.raw[0] == _ENTRY else 'after'} {inside}")
        if information.raw[0] == _EXIT:
            inside = None


def _change(process: int, information: bytes, folder: Path) -> str | None:
    """Name the call if it changes files; `None` for all others."""
    number, *arguments = struct.unpack_from("<7Q", information, 24)
    if number in WRITES:
        try:
            target = os.readlink(f"/proc/{process}/fd/{arguments[0] & 0xFFFFFFFF}")
        except OSError:
            return None
        return WRITES[number] if target.startswith(f"{folder}/") else None
    if number == OPENAT and arguments[2] & O_CREAT:
        return "create"
    return CHANGES.get(number)
