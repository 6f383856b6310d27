"""The process in which customers' checks run. Stands alone: started as `python -I -S -B child.py` by `process`, with
an empty environment and an empty working folder; nothing of kolm can be imported here.

It reads one job from descriptor 0, gives up everything it can (namespaces, root, user, capabilities, limits), closes
every descriptor but the one for verdicts, sets the system-call filter it was sent, and only then decodes the job and
runs the checks. Frames back: four bytes of length, then JSON: first {"active": [...]}, then [call, verdict] for each
call in order; the verdict is true, false, or a sentence about a fault. A check that writes frames itself can lie about
the rows of this job and about nothing else.
"""

# ruff: noqa: F401 -- what is not imported here cannot be imported later
import _strptime  # type: ignore[import-not-found]  # datetime imports it on first use
import bisect
import builtins
import calendar
import cmath
import collections
import collections.abc
import copy
import ctypes
import dataclasses
import datetime
import decimal
import difflib
import encodings.idna
import encodings.latin_1
import encodings.punycode
import encodings.unicode_escape
import encodings.utf_16
import enum
import fractions
import functools
import heapq
import itertools
import json
import math
import numbers
import operator
import os
import random
import re
import resource
import statistics
import string
import struct
import sys
import textwrap
import time
import types
import typing
import unicodedata
import warnings
from typing import Any

ALLOWED = frozenset(
    (
        *(
            "bisect",
            "calendar",
            "cmath",
            "collections",
            "copy",
            "dataclasses",
            "datetime",
            "decimal",
            "difflib",
            "enum",
        ),
        *("fractions", "functools", "heapq", "itertools", "json", "math", "numbers", "operator", "random"),
        *("re", "statistics", "string", "textwrap", "time", "typing", "unicodedata"),
    )
)
LATE = frozenset(("_strptime", "warnings"))  # what C code imports on behalf of a check's own call
WITHHELD = ("open", "input", "breakpoint", "exit", "quit", "help")
NOBODY = 65534
FAULT_CHARS = 300
SOURCE_NAME = "<check>"
VERDICTS = 3  # the one descriptor that stays open
NO_FILTER, NO_JOB = 71, 72  # exit codes: nothing of a check ran

_PDEATHSIG, _DUMPABLE, _SECCOMP, _NO_NEW_PRIVS = 1, 4, 22, 38  # prctl
_NAMESPACES = {"mounts": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "network": 0x40000000, "processes": 0x20000000}
_NEW_USER = 0x10000000


def main() -> None:
    head, job = _read_frame(), _read_frame()
    wanted = json.loads(head)  # ours: limits and the filter; the job is decoded behind the filter
    os.environ["TZ"] = "UTC0"  # or the first local time would read a file
    time.tzset()
    time.localtime()
    warnings.simplefilter("ignore")  # a warning's text would be looked up in a file
    active = _lock_in(wanted) if sys.platform == "linux" else []
    _silence()
    if not active:
        _limit(wanted)  # a weak sandbox, which this installation asked for
        _keep_one_descriptor()
    _write_frame({"active": active})
    _run(json.loads(job))
    os._exit(0)


def _lock_in(wanted: dict[str, Any]) -> list[str]:
    """Everything that Linux has, the filter last; the names of what is active."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PDEATHSIG, 9, 0, 0, 0)
    active = _leave_the_world(libc)
    if "processes" in active:
        _go_on_in_a_child()
    active += _give_up_privileges(libc)
    libc.prctl(_PDEATHSIG, 9, 0, 0, 0)  # a change of user takes it back
    _keep_one_descriptor()
    _limit(wanted)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        active.append("no_new_privs")
    if wanted["filter"]:
        _set_filter(libc, bytes.fromhex(wanted["filter"]))
        active.append("seccomp")
    return active


def _keep_one_descriptor() -> None:
    os.dup2(1, VERDICTS)
    os.closerange(0, VERDICTS)
    os.closerange(VERDICTS + 1, 1 << 16)


def _read_frame() -> bytes:
    (n,) = struct.unpack(">I", _read(4))
    return _read(n)


def _read(n: int) -> bytes:
    parts = []
    while n:
        part = os.read(0, min(n, 1 << 20))
        if not part:
            os._exit(NO_JOB)
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def _leave_the_world(libc: ctypes.CDLL) -> list[str]:
    """Namespaces of its own and an empty root, as far as this kernel lets us."""
    active = []
    if os.geteuid() != 0 and libc.unshare(_NEW_USER) == 0:
        active.append("user")
    active += [name for name, flag in _NAMESPACES.items() if libc.unshare(flag) == 0]
    try:
        os.chroot(".")
    except OSError:
        return active
    os.chdir("/")
    return [*active, "empty_root"]


def _go_on_in_a_child() -> None:
    """A process namespace holds the children of who made it. The parent waits and ends as its child did."""
    pid = os.fork()
    if pid == 0:
        return
    os.closerange(0, 1 << 16)
    _, status = os.waitpid(pid, 0)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _give_up_privileges(libc: ctypes.CDLL) -> list[str]:
    active = []
    if os.getuid() == 0 and os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            active.append("nobody")
        except OSError:
            pass  # no right to change it, or an id that this user namespace does not have
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if libc.capset(header, (ctypes.c_uint32 * 6)()) == 0:
        active.append("no_capabilities")
    libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    return active


def _limit(wanted: dict[str, int]) -> None:
    """Limit what the process may use. Nothing can be opened afterwards: NOFILE counts what is already open, too."""
    for what, limit in (
        ("AS", wanted["memory_bytes"]),
        ("DATA", wanted["memory_bytes"]),
        ("CPU", wanted["cpu_s"]),
        ("CORE", 0),
        ("FSIZE", 0),
        ("NOFILE", 0),
        ("NPROC", 0),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
    ):
        number = getattr(resource, f"RLIMIT_{what}", None)
        if number is not None:
            try:
                resource.setrlimit(number, (limit, limit))
            except (ValueError, OSError):
                if what not in ("MEMLOCK", "MSGQUEUE", "AS", "DATA"):
                    os._exit(NO_FILTER)


def _silence() -> None:
    """No stream, and no importer: what is loaded is all there is."""
    sink = _Sink()
    sys.stdin = sys.stdout = sys.stderr = sys.__stdin__ = sys.__stdout__ = sys.__stderr__ = sink  # type: ignore
    sys.meta_path[:] = []
    sys.path_hooks[:] = []
    sys.path[:] = []
    sys.unraisablehook = lambda _: None


class _Sink:
    """Takes what is printed and keeps nothing."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _set_filter(libc: ctypes.CDLL, rows: bytes) -> None:
    held = ctypes.create_string_buffer(rows, len(rows))
    program = _Program(len(rows) // 8, ctypes.cast(held, ctypes.c_void_p))
    if libc.prctl(_SECCOMP, 2, ctypes.byref(program), 0, 0) != 0:
        os._exit(NO_FILTER)


def _write_frame(value: object) -> None:
    data = json.dumps(value).encode()
    data = struct.pack(">I", len(data)) + data
    while data:
        data = data[os.write(VERDICTS, data) :]


def _run(job: dict[str, Any]) -> None:
    """Each call is [check, input, value]; the inputs stand apart because many checks share one."""
    checks: dict[int, object] = {}
    for at, (which, text_at, value) in enumerate(job["calls"]):
        if which not in checks:
            checks[which] = _compile(job["sources"][which])
        check = checks[which]
        verdict = check if isinstance(check, str) else _verdict(check, job["inputs"][text_at], value, job, which)
        _write_frame([at, verdict])


def _compile(source: str) -> object:
    """The function `check` of a program, or a sentence about why there is none."""
    builtin = {name: value for name, value in vars(builtins).items() if name not in WITHHELD}
    builtin["__import__"] = _import
    scope: dict[str, object] = {"__name__": "check", "__builtins__": builtin}
    try:
        exec(compile(source, SOURCE_NAME, "exec", dont_inherit=True), scope)
    except BaseException as fault:  # noqa: BLE001 (a check may raise anything)
        return _sentence(fault, source)
    check = scope.get("check")
    return check if callable(check) else "the program defines no function `check`"


def _import(name: str, *args: object, **kwargs: object) -> types.ModuleType:
    """Import what a check may import; it is the filter that keeps a check from using the rest."""
    if name.partition(".")[0] not in ALLOWED | LATE:
        raise ImportError(f"checks may not import {name[:60]!r}")
    return __import__(name, *args, **kwargs)  # type: ignore


def _verdict(check: object, text: str, value: object, job: dict[str, Any], which: int) -> object:
    try:
        verdict = check(text, value)  # type: ignore
        if verdict is True or verdict is False:
            return verdict
        return f"`check` returned {type(verdict).__name__[:60]}, not True or False"
    except BaseException as fault:  # noqa: BLE001
        return _sentence(fault, job["sources"][which])


def _sentence(fault: BaseException, source: str) -> str:
    """ "line 3: ValueError: what it says (return int(output))", bounded. Neither linecache nor traceback: they read
    files."""
    try:
        return _describe(fault, source)[:FAULT_CHARS]
    except BaseException:  # noqa: BLE001 (its __str__ is the check's own code)
        return "it raised an exception that cannot be shown"


def _describe(fault: BaseException, source: str) -> str:
    line = fault.lineno if isinstance(fault, SyntaxError) and fault.filename == SOURCE_NAME else None
    at = fault.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == SOURCE_NAME:
            line = at.tb_lineno
        at = at.tb_next
    message = fault.msg if isinstance(fault, SyntaxError) else str(fault)
    text = f"{type(fault).__name__[:60]}: {' '.join(str(message)[:160].split())}".rstrip(": ")
    lines = source.split("\n")
    if line is None or not 1 <= line <= len(lines):
        return text
    return f"line {line}: {text} ({' '.join(lines[line - 1][:120].split())})"


if __name__ == "__main__":
    main()
