"""One run of a sandboxed process: a job in, verdicts out, and what ended it.

The parent trusts nothing that comes back: a frame that is too long, malformed or out of turn ends the process, and the
call whose turn it was is at fault.
"""

import contextlib
import enum
import json
import os
import platform
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workers.sandbox.filter import seccomp_program
from workers.sandbox.limits import Limits, SandboxUnavailable

CHILD = Path(__file__).with_name("child.py")
VERDICTS = 3  # the child's descriptor for them; child.py says the same
MAX_FRAME = 4096
MAX_SENTENCE = 300
START_S = 20.0  # for an interpreter on a machine that is busy
END_S = 1.0  # for one that has closed its pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Run check number `check` once."""

    check: int
    text: str
    value: object


class End(enum.StrEnum):
    """The reason for which a process gave no further verdict."""

    DONE = "done"
    ROW_TIME = "row_time"
    BATCH_TIME = "batch_time"
    FORBIDDEN = "forbidden"
    CRASHED = "crashed"
    CPU_TIME = "cpu_time"
    LEFT = "left"
    FORGED = "forged"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """`verdicts` answer the first calls of the job, in order; a text is a fault. `active` names the protections that
    held the process."""

    verdicts: list[bool | str] = field(default_factory=list)
    end: End = End.DONE
    active: tuple[str, ...] | None = None


def run_process(sources: Sequence[str], calls: Sequence[Call], *, limits: Limits, deadline: float) -> Outcome:
    """Run the calls in a new process until all are done or one has to be stopped. `deadline` is of time.monotonic.
    Raises SandboxUnavailable where the process could not be locked in."""
    outcome = Outcome()
    with _start() as process:
        ended = _talk(process, _job(sources, calls, limits), outcome, len(calls), limits, deadline)
        if ended is End.LEFT:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)  # it closed its pipe; how it ended says why
        _kill(process)
        status = process.wait()
    if outcome.active is None and ended is not End.BATCH_TIME:
        raise SandboxUnavailable(f"The sandbox for python checks could not be set up here (exit status {status}).")
    if len(outcome.verdicts) < len(calls):
        outcome.end = ended if ended is not End.LEFT else _cause(status)
    return outcome


def _job(sources: Sequence[str], calls: Sequence[Call], limits: Limits) -> bytes:
    program = seccomp_program(platform.machine(), write_fd=VERDICTS) if sys.platform == "linux" else None
    head = {
        "filter": (program or b"").hex(),
        "memory_bytes": limits.memory_bytes,
        "cpu_s": int(limits.batch_s) + 1,
    }
    texts: dict[str, int] = {}
    rows = [(call.check, texts.setdefault(call.text, len(texts)), call.value) for call in calls]
    return _frame(head) + _frame({"sources": list(sources), "inputs": list(texts), "calls": rows})


def _frame(value: object) -> bytes:
    data = json.dumps(value).encode()
    return struct.pack(">I", len(data)) + data


@contextlib.contextmanager
def _start() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, in an empty folder that nobody can write to, with an empty environment."""
    with tempfile.TemporaryDirectory(prefix="kolm-check-") as folder:
        os.chmod(folder, 0o555)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={},
            start_new_session=True,
            bufsize=0,
        )
        try:
            yield process
        finally:
            _kill(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill its whole session, before it is waited for: until then its number cannot be another's."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _talk(
    process: subprocess.Popen[bytes], job: bytes, outcome: Outcome, n_calls: int, limits: Limits, deadline: float
) -> End:
    """Send the job and read the verdicts, both as the pipes allow."""
    assert process.stdin is not None
    assert process.stdout is not None
    for pipe in (process.stdin, process.stdout):
        os.set_blocking(pipe.fileno(), False)
    unsent, unread = memoryview(job), bytearray()
    turn = time.monotonic() + START_S
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdin, selectors.EVENT_WRITE)
        ready.register(process.stdout, selectors.EVENT_READ)
        while len(outcome.verdicts) < n_calls:
            left = min(turn, deadline) - time.monotonic()
            if left <= 0:
                return End.BATCH_TIME if deadline <= turn else End.ROW_TIME
            for key, _ in ready.select(left):
                if key.fileobj is process.stdin:
                    unsent = _send(process.stdin.fileno(), unsent)
                    if not unsent:
                        ready.unregister(process.stdin)
                    continue
                data = process.stdout.read(1 << 16)
                if data == b"":
                    return End.LEFT
                unread += data or b""
                before = outcome.active, len(outcome.verdicts)
                if not _take_frames(unread, outcome, n_calls):
                    return End.FORGED
                if before != (outcome.active, len(outcome.verdicts)):  # a frame that drips in buys no time
                    turn = time.monotonic() + limits.row_s
    return End.DONE


def _send(fd: int, unsent: memoryview) -> memoryview:
    """Send a piece and return the rest: nothing, where the process has gone (the other pipe says so)."""
    try:
        return unsent[os.write(fd, unsent[: 1 << 16]) :]
    except BlockingIOError:
        return unsent
    except BrokenPipeError:
        return unsent[:0]


def _take_frames(unread: bytearray, outcome: Outcome, n_calls: int) -> bool:
    """Move the whole frames of `unread` into `outcome`; False for one that cannot be."""
    while len(unread) >= 4:
        (n,) = struct.unpack(">I", unread[:4])
        if n > MAX_FRAME:
            return False
        if len(unread) < 4 + n:
            return True
        frame = bytes(unread[4 : 4 + n])
        del unread[: 4 + n]
        try:
            message = json.loads(frame)
        except (ValueError, RecursionError):
            return False
        if outcome.active is None:
            outcome.active = tuple(str(name) for name in message["active"])  # written before any check was decoded
            continue
        if not _is_next(message, len(outcome.verdicts)) or len(outcome.verdicts) >= n_calls:
            return False
        outcome.verdicts.append(message[1] if isinstance(message[1], bool) else showable(message[1]))
    return True


def _is_next(message: object, turn: int) -> bool:
    return (
        isinstance(message, list)
        and len(message) == 2
        and isinstance(message[0], int)
        and not isinstance(message[0], bool)
        and message[0] == turn
        and isinstance(message[1], bool | str)
    )


def showable(sentence: str) -> str:
    """A text from the sandbox, bounded, on one line and without characters that cannot be stored or seen."""
    return "".join(char if char.isprintable() else " " for char in sentence[:MAX_SENTENCE])


def _cause(status: int) -> End:
    """The end of a process that closed its pipe with verdicts still due. `status` is its own, or its child's as 128 +
    signal."""
    number = -status if status < 0 else status - 128
    if number == signal.SIGSYS:
        return End.FORBIDDEN
    if number == signal.SIGXCPU:
        return End.CPU_TIME
    return End.CRASHED if number > 0 else End.LEFT
