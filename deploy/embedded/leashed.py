"""Becomes another program that dies with its supervisor: `python -I -S leashed.py KIND SIGNAL SUPERVISOR UID
COMMAND...`

KIND `kernel` (Linux): the kernel sends SIGNAL when the supervisor is gone (PR_SET_PDEATHSIG; it survives exec, but not
a later change of user, so the user is changed here). KIND `watcher` (elsewhere): a small process in the same group
looks twice a second and ends the group. A program of its own rather than `preexec_fn`, which may deadlock when the
supervisor has threads (as a test process may).
"""

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
LOOK_EVERY_S = 0.5
GRACE_S = 3.0


def main(kind: str, orphan_signal: int, supervisor: int, uid: int, command: list[str]) -> None:
    if uid >= 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    if kind == "kernel":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, orphan_signal, 0, 0, 0)
        if os.getppid() != supervisor:  # it died before the line above
            os._exit(1)
    else:
        program = os.getpid()  # asked for before: the child may run first when this process has ended
        if os.fork() == 0:
            watch(supervisor, program, orphan_signal)
    os.execvp(command[0], command)


def watch(supervisor: int, program: int, orphan_signal: int) -> None:
    while os.getppid() == program:
        if not lives(supervisor):
            os.kill(program, orphan_signal)
            time.sleep(GRACE_S)
            os.killpg(0, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S)
    os._exit(0)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, as another user
        return True
    return True


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
