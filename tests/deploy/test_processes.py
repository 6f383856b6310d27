"""Children die with their supervisor, whichever way it dies and on whichever system."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from deploy.embedded.processes import LEASHED, created_at, kill_group

GRANDCHILD = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
SUPERVISOR = """
import os, subprocess, sys, time
leash = [sys.executable, "-I", "-S", {leashed!r}, {kind!r}, "9", str(os.getpid()), "-1"]
command = [*leash, sys.executable, "-c", {program!r}]
child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline(), flush=True)
time.sleep(60)
"""


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while created_at(pid) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("kernel", marks=pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")),
        "watcher",
    ],
)
def test_a_child_ends_when_its_supervisor_is_killed(kind: str) -> None:
    code = SUPERVISOR.format(leashed=str(LEASHED), kind=kind, program=GRANDCHILD)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        child, grandchild = map(int, supervisor.stdout.readline().split())
        supervisor.kill()
    assert gone(child, within_s=3.0)
    if kind == "watcher":  # it ends the whole group; the kernel's signal reaches the child alone
        assert gone(grandchild, within_s=6.0)
    else:
        os.kill(grandchild, signal.SIGKILL)


def test_a_child_that_ends_takes_its_watcher_with_it() -> None:
    command = [sys.executable, "-I", "-S", str(LEASHED), "watcher", "9", str(os.getpid()), "-1", "sleep", "0.1"]
    child = subprocess.Popen(command, start_new_session=True)
    group = child.pid
    child.wait()
    deadline = time.monotonic() + 3.0
    while any(_group_of(process.pid) == group for process in psutil.process_iter()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_group_of(process.pid) == group for process in psutil.process_iter())


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid) if created_at(pid) is not None else None
    except ProcessLookupError:
        return None


def test_killing_a_group_ends_what_the_child_started() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", GRANDCHILD], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    born = created_at(child.pid)
    assert born is not None
    kill_group(child.pid, born)
    child.wait()
    child.stdout.close()
    assert gone(grandchild, within_s=2.0)


def test_a_stranger_with_a_recorded_pid_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        kill_group(stranger.pid, created=time.time() - 3600)
        assert stranger.poll() is None
        stranger.kill()


def test_the_leash_needs_nothing_but_the_standard_library() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"compile(open({str(LEASHED)!r}).read(), 'x', 'exec')"])
    assert done.returncode == 0
    assert "psutil" not in Path(LEASHED).read_text()
