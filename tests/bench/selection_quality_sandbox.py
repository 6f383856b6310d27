"""Runs programs that a model wrote, for the code bench: one process a problem, forked once for each program.

What holds a program: no network (an own network namespace, where `unshare` may make one), user 65534 where the bench
runs as root, `python -I` with an empty environment, an empty working folder that is deleted, limits on memory, CPU
time, file size, open files and processes, and an alarm it cannot outlive (its process group is killed). The usual
modules of the standard library are imported beforehand, since the user it runs as may be unable to read the
interpreter's folder; a program that needs another module fails. It is no defence against a hostile program.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

SECONDS = 3
MEMORY_BYTES = 512 * 1024 * 1024

_RUNNER = r"""
import json, os, resource, select, signal, sys, time
import bisect, collections, copy, datetime, decimal, fractions, functools, hashlib, heapq, itertools, math, operator
import queue, random, re, statistics, string, typing
job = json.load(sys.stdin)
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
real = os.dup(1)
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)

def child(program, write):
    os.setpgid(0, 0)
    for what, limit in (("AS", job["memory"]), ("CPU", job["seconds"]), ("FSIZE", 1 << 20), ("NOFILE", 32),
                        ("NPROC", 64), ("CORE", 0)):
        resource.setrlimit(getattr(resource, "RLIMIT_" + what), (limit, limit))
    sys.setrecursionlimit(3000)
    for mark, check in zip((b"v", b"f"), job["checks"]):
        exec(compile(program + "\n" + check, "<program>", "exec"), {"__name__": "program"})
        os.write(write, mark)

for program in job["programs"]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read); os.close(real)
        try:
            child(program, write)
        except BaseException:
            pass
        os._exit(0)
    os.close(write)
    said, until = b"", time.monotonic() + job["seconds"]
    while (left := until - time.monotonic()) > 0 and select.select([read], [], [], left)[0]:
        piece = os.read(read, 2)
        if not piece:
            break
        said += piece
    for kill in (lambda: os.killpg(pid, signal.SIGKILL), lambda: os.kill(pid, signal.SIGKILL)):
        try:
            kill()
        except OSError:
            pass
    os.waitpid(pid, 0)
    os.close(read)
    os.write(real, (said.decode() + "\n").encode())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a program got right: the one check that a user would show, and all of them."""

    visible: bool
    full: bool


def isolation() -> tuple[str, ...]:
    """The words before `python` that take its network away; none where the system refuses."""
    for words in (("unshare", "--net"), ("unshare", "--map-root-user", "--net")):
        if (
            shutil.which(words[0])
            and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        ):
            return words
    return ()


def run_programs(programs: Sequence[str], *, visible: str, full: str, seconds: int = SECONDS) -> list[Verdict]:
    """Each program followed by `visible` and, where that raised nothing, by `full`, in a namespace of its own."""
    job = {"programs": list(programs), "checks": [visible, full], "seconds": seconds, "memory": MEMORY_BYTES}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        done = subprocess.run(
            [*isolation(), sys.executable, "-I", "-c", _RUNNER],
            input=json.dumps(job).encode(),
            capture_output=True,
            cwd=folder,
            env={},
            timeout=60 + 2 * seconds * len(programs),
            check=True,
        )
    lines = done.stdout.decode().split("\n")[: len(programs)]
    return [Verdict(visible="v" in line, full="f" in line) for line in lines]
