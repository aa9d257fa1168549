"""Watch processes change files, and disturb them at a chosen system call (Linux on x86-64).

Nothing of the program is patched: whatever writes, in Python or in C++, in a thread or in a worker
process, is seen. A seccomp filter stops a process at the calls that change files, and at no other,
and `ptrace` tells us.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from errno import ENOSPC
from pathlib import Path

from fork_server import leave

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"

WRITES = {1: "write", 18: "pwrite64", 20: "writev", 40: "sendfile", 77: "ftruncate"}
"""Calls by number that change the file of their first argument."""
CHANGES = {
    74: "fsync", 75: "fdatasync", 76: "truncate", 82: "rename", 83: "mkdir", 84: "rmdir",
    86: "link", 87: "unlink", 88: "symlink", 258: "mkdirat", 263: "unlinkat", 264: "renameat",
    316: "renameat2",
}  # fmt: skip
OPENAT, O_CREAT = 257, 0o100
NEED_SPACE = {"write", "pwrite64", "writev", "sendfile", "mkdir", "mkdirat", "fsync", "fdatasync"}
"""What a full disk refuses."""
DISTURBANCES = ("kill", "stop", "full")
"""`kill -9`; SIGTERM; a disk that is full from then on."""
LONGEST = 120.0
"""Seconds after which a command counts as hung."""

_TRACEME, _CONT, _SYSCALL, _POKEUSER, _SETOPTIONS, _INFO = 0, 7, 24, 6, 0x4200, 0x420E
_OPTIONS = 1 | 2 | 4 | 8 | 0x10 | 0x80 | 0x100000
"""Of syscall stops, fork, vfork, clone, exec, seccomp; kill what is traced if the tracer dies."""
_SECCOMP_STOP = signal.SIGTRAP | 7 << 8
_RAX, _ORIG_RAX = 80, 120
_WALL = 0x40000000


@dataclass
class Watched:
    """What a watched command did."""

    code: int | None = None
    """Its exit code; `None`: it was killed where it was asked to be, or hung."""
    moments: list[str] = field(default_factory=list)
    """"before write", "after write", "before rename", ..., in order."""
    hung: bool = False


def watch(
    work: Callable[[], int], folder: Path, at: int | None = None, how: str = "kill"
) -> Watched:
    """Fork, do `work` in the child, and note each moment around a change of files.

    Args:
        work: returns the exit code.
        folder: writes to files outside it do not count.
        at: the moment (from 0) at which the child is disturbed.
        how: one of `DISTURBANCES`.
    """
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        _ptrace(_TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        _stop_at_changes()
        leave(work)
    os.waitpid(process, 0)
    _ptrace(_SETOPTIONS, process, 0, _OPTIONS)
    _ptrace(_CONT, process)
    watcher = _Watcher(process, folder, at, how)
    end = time.monotonic() + LONGEST
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(process, signal.SIGKILL))
    signal.alarm(int(LONGEST))
    try:
        while watcher.next():
            pass
    finally:
        signal.alarm(0)
        _end_all(process)
    watcher.seen.hung = time.monotonic() > end
    return watcher.seen


class _Watcher:
    """Takes the stops of a process and of those that it started, one after the other."""

    def __init__(self, process: int, folder: Path, at: int | None, how: str) -> None:
        self.process, self.folder, self.at, self.how = process, f"{folder}/", at, how
        self.seen = Watched()
        self.inside: dict[int, str] = {}
        self.full = False

    def next(self) -> bool:
        """Take one stop; whether there is more to come."""
        who, status = os.waitpid(-1, _WALL)
        if not os.WIFSTOPPED(status):
            if who == self.process:
                code = os.waitstatus_to_exitcode(status)
                self.seen.code = None if code == -signal.SIGKILL else code
            return who != self.process
        stop = status >> 8
        if stop == _SECCOMP_STOP:
            name = _change(who, self.folder)
            if name is None:
                return _go_on(_CONT, who)
            self.inside[who] = name
            return self._moment("before", who, name) and _go_on(_SYSCALL, who)
        if stop == signal.SIGTRAP | 0x80:
            name = self.inside.pop(who)
            return self._moment("after", who, name) and _go_on(_CONT, who)
        ours = stop >> 8 or stop == signal.SIGSTOP  # a fork, and the first stop of a new process
        return _go_on(_CONT, who, 0 if ours else stop)

    def _moment(self, when: str, who: int, name: str) -> bool:
        if self.at == len(self.seen.moments):
            if self.how == "kill":
                return False
            if self.how == "stop":
                os.kill(self.process, signal.SIGTERM)
            self.full = self.how == "full"
        self.seen.moments.append(f"{when} {name}")
        if when == "before" and self.full and name in NEED_SPACE:
            _ptrace(_POKEUSER, who, _ORIG_RAX, -1)  # no call at all
            _ptrace(_POKEUSER, who, _RAX, -ENOSPC)
        return True


def _go_on(request: int, process: int, deliver: int = 0) -> bool:
    _ptrace(request, process, 0, deliver)
    return True


def _end_all(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, _WALL)


def _change(process: int, folder: str) -> str | None:
    """Name the call that a process stopped at if it changes files of the folder, or names."""
    information = ctypes.create_string_buffer(88)
    _ptrace(_INFO, process, 88, ctypes.addressof(information))
    number, *arguments = struct.unpack_from("<7Q", information.raw, 24)
    if number in WRITES:
        try:
            target = os.readlink(f"/proc/{process}/fd/{arguments[0] & 0xFFFFFFFF}")
        except OSError:
            return None
        return WRITES[number] if target.startswith(folder) else None
    return "create" if number == OPENAT else CHANGES.get(number)


def _ptrace(request: int, process: int, address: int = 0, data: int = 0) -> int:
    return int(_libc().ptrace(request, process, address, data))


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return libc


def _stop_at_changes() -> None:
    """Let the kernel stop this process, and those it starts, at the calls above."""
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    allow, trace = 0x7FFF0000, 0x7FF00000
    numbers = [*WRITES, *CHANGES]
    program = [(load, 0, 0, 0)]  # the number of the call
    for k, number in enumerate(numbers):
        program.append((equal, len(numbers) - k + 3, 0, number))
    program += [(equal, 0, 2, OPENAT), (load, 0, 0, 32), (any_bit, 1, 0, O_CREAT)]
    program += [(give, 0, 0, allow), (give, 0, 0, trace)]
    code = b"".join(struct.pack("<HBBI", *line) for line in program)
    text = ctypes.create_string_buffer(code)
    header = ctypes.create_string_buffer(
        struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(text))
    )
    libc = _libc()
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(header)), 0, 0) == 0  # PR_SET_SECCOMP
