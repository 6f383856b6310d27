"""Child processes that do not outlive their supervisor, whatever kills it.

Each child leads a process group of its own, so that ending it ends what it started, and is started through `leashed`,
so that it dies with us. Linux ties that to the *thread* that started it: start children from a thread that stays.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deploy.embedded.faults import CannotStart
from deploy.embedded.ports import HOST, is_free

LEASHED = Path(__file__).with_name("leashed.py")
MAX_LOG_BYTES = 10 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """`prepare` runs before the first start, `after_ready` once the child first answers; a restart repeats neither."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    port: int | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    orphan_signal: signal.Signals = signal.SIGKILL  # what the kernel sends when the supervisor is gone
    grace_s: float = 5.0
    user: int | None = None
    is_ready: Callable[[], bool] | None = None
    alive_url: str | None = None  # what `liveness` asks
    alive_file: Path | None = None  # what the process touches while it moves
    ready_within_s: float = 60.0
    prepare: Callable[[], None] | None = None
    after_ready: Callable[[], None] | None = None


@dataclass(slots=True)
class Child:
    """A running ChildSpec. `created` beside the pid tells this process from a later one with the same number."""

    spec: ChildSpec
    process: "subprocess.Popen[bytes]"
    created: float
    started: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.process.pid

    def has_died(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """SIGKILL to it and all that it started. Until it is reaped its number is its own, whatever a clock that was
        set has made of its birth."""
        birth = None if self.has_died() else created_at(self.pid)
        kill_group(self.pid, self.created if birth is None else birth)


def spawn(spec: ChildSpec) -> Child:
    _turn_over_log(spec.log)
    with spec.log.open("ab") as log:
        process = subprocess.Popen(
            (*_leash(spec), *spec.command),
            cwd=spec.cwd,
            env=dict(spec.env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Child(spec=spec, process=process, created=created_at(process.pid) or time.time())


def wait_until_ready(child: Child) -> None:
    """Raises CannotStart, with the last line of the log, when the child dies or stays silent."""
    spec = child.spec
    deadline = time.monotonic() + spec.ready_within_s
    while spec.is_ready is not None:
        if child.has_died():
            raise CannotStart(f"{spec.name} ended while starting: {_why(spec)} (log: {spec.log})")
        if spec.is_ready():
            return
        if time.monotonic() > deadline:
            raise CannotStart(
                f"{spec.name} gave no answer in {spec.ready_within_s:.0f} s: {last_line(spec.log)} (log: {spec.log})"
            )
        time.sleep(0.02)


def _why(spec: ChildSpec) -> str:
    """A server whose port is taken says so in its own way, some in fifty lines of where they were."""
    if spec.port is not None and not is_free(spec.port):
        return f"port {spec.port} on {HOST} is in use by another program"
    return last_line(spec.log)


def stop(children: list[Child]) -> None:
    """End children and all they started: to each its stop signal at once, then SIGKILL after the longest grace."""
    for child in children:
        if not child.has_died():
            child.process.send_signal(child.spec.stop_signal)
    deadline = time.monotonic() + max((child.spec.grace_s for child in children), default=0.0)
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        child.kill()
        child.process.wait()


def kill_group(leader: int, created: float) -> None:
    """SIGKILL a child of ours and all it started. A leader with another birth is a stranger: then nothing happens.

    Descendants are looked up too, since some lead sessions of their own (Postgres' backends, a runner's training). When
    the leader is gone but members of its group live on, the kernel cannot have given its number away: the group is
    ours.
    """
    birth = created_at(leader)
    if birth is not None and abs(birth - created) > 1.0:
        return
    descendants: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        descendants = psutil.Process(leader).children(recursive=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for process in descendants:
        with contextlib.suppress(psutil.NoSuchProcess):  # psutil compares births, so a stranger is safe here as well
            process.kill()
    psutil.wait_procs(descendants, timeout=2.0)


def created_at(pid: int) -> float | None:
    """Return when the process was born (seconds since 1970), or None when it is gone; a zombie is gone."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def last_line(log: Path) -> str:
    """The line of a log that most likely says why it is the last: the last fault, else the last line."""
    lines = (
        [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    )
    faults = [line for line in lines[-30:] if re.search("FATAL|PANIC|[Ee]rror", line)]
    return (faults or lines or ["it wrote nothing"])[-1][:300]


def _leash(spec: ChildSpec) -> tuple[str, ...]:
    kind = "kernel" if sys.platform == "linux" else "watcher"
    user = -1 if spec.user is None else spec.user
    return (sys.executable, "-I", "-S", str(LEASHED), kind, str(int(spec.orphan_signal)), str(os.getpid()), str(user))


def _turn_over_log(log: Path) -> None:
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
