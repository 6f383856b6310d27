"""The supervisor: starts the parts in order, restarts those that die or do not answer, ends them all together.

`Stack` is one running deployment and serves two masters: `supervise` (the command `up`) and `EmbeddedServices` (tests).
"""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Self

from deploy.embedded import credentials, layout, postgres
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import Home
from deploy.embedded.layout import Layout, Part
from deploy.embedded.liveness import LOOK_EVERY_S, Watch, limit_s
from deploy.embedded.parts import child_specs
from deploy.embedded.ports import free_ports
from deploy.embedded.processes import Child, created_at, kill_group, spawn, stop, wait_until_ready

FIRST_DELAY_S, LONGEST_DELAY_S = 0.2, 15.0
LEFTOVERS_GRACE_S = 8.0
PROVEN_S = 60.0  # a child that lived this long and dies is restarted as if for the first time


class StopRequested(BaseException):
    """SIGTERM, SIGINT or SIGHUP. Not an Exception: nothing between the signal and the supervisor may swallow it."""


class Stack:
    """The children of one deployment, its note in stack.json, and the lock that makes it the only one on its home."""

    def __init__(self, plan: Layout, *, forgetful: bool = False) -> None:
        self.plan = plan
        self.children: dict[Part, Child] = {}
        self.restarts: dict[Part, int] = dict.fromkeys(plan.parts, 0)
        self.reasons: dict[Part, str] = {}  # of the last restart
        self._specs = child_specs(plan, forgetful=forgetful)
        self._due: dict[Part, float] = {}
        self._reasons: dict[Part, str] = {}
        self._silent_limit_s = limit_s(plan.variables)
        self._is_noted = True

    def start(self) -> None:
        """Every part, each ready before the next. Raises CannotStart; what had been started is ended first."""
        try:
            for part, spec in self._specs.items():
                self._note(f"starting {part}")
                if spec.prepare is not None:
                    spec.prepare()
                self.start_part(part)
                wait_until_ready(self.children[part])
                if spec.after_ready is not None:
                    spec.after_ready()
        except BaseException:
            self.stop()
            raise
        self._note("ready")

    def start_part(self, part: Part) -> None:
        self.children[part] = spawn(self._specs[part])

    def stop(self) -> None:
        """First what uses the servers, then the servers."""
        self._note("stopping")
        for group in (frozenset(Part) - layout.DATA, layout.DATA):
            stop([child for part, child in reversed(self.children.items()) if part in group])
        self.children.clear()
        self.plan.home.state.unlink(missing_ok=True)

    def supervise(self) -> None:
        """Restart what dies, and what does not answer, until a signal raises StopRequested."""
        with _wakeups() as wakeups, Watch(self._specs) as watch:
            while True:
                self._end_the_silent(watch)
                self._revive()
                next_due = min(self._due.values(), default=time.monotonic() + LOOK_EVERY_S)
                wait_s = min(LOOK_EVERY_S, next_due - time.monotonic())
                select.select([wakeups], [], [], max(0.01, wait_s))
                with contextlib.suppress(BlockingIOError):
                    os.read(wakeups, 4096)

    def _end_the_silent(self, watch: Watch) -> None:
        """SIGKILL at once: what does not answer does not hear a request to stop. Leases cover what it held."""
        watch.look()
        for part, child in self.children.items():
            silent_s = watch.silent_s(part, child)
            if part in self._due or child.has_died() or silent_s < self._silent_limit_s:
                continue
            self._reasons[part] = f"it did not answer for {silent_s:.0f} s"
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=5.0)

    def _revive(self) -> None:
        for part, child in self.children.items():
            if part not in self._due and child.has_died():
                child.kill()
                lived_s = time.monotonic() - child.started
                self.restarts[part] = 1 if lived_s > PROVEN_S else self.restarts[part] + 1
                delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (self.restarts[part] - 1))
                self._due[part] = time.monotonic() + delay_s
                why = self._reasons.pop(part, f"it ended with status {child.process.returncode}")
                self.reasons[part] = why
                _say(f"{part}: {why}; starting it again in {delay_s:.1f} s")
                self._is_noted = False
        for part in [part for part, due in self._due.items() if due <= time.monotonic()]:
            try:
                if part is Part.POSTGRES:
                    postgres.remove_stale_pid_file(self.plan.home.pgdata)
                self.start_part(part)
            except OSError as fault:  # no room for its log, or for another process: the other parts live on
                _say(f"{part}: it cannot be started ({fault.strerror}); trying again in {LONGEST_DELAY_S:.0f} s")
                self._due[part] = time.monotonic() + LONGEST_DELAY_S
                continue
            del self._due[part]
            self._is_noted = False
        if not self._is_noted:
            with contextlib.suppress(OSError):  # a full disk ends no part; the note is written when there is room
                self._note("ready")
                self._is_noted = True

    def _note(self, doing: str) -> None:
        plan = self.plan
        state: dict[str, Any] = {
            "doing": doing,
            "supervisor": os.getpid(),
            "url": plan.public_url,
            "grammar_url": plan.grammar_url,
            "parts": list(plan.parts),
            "ports": dict(plan.ports),
            "children": {
                part: {
                    "pid": child.pid,
                    "created": child.created,
                    "restarts": self.restarts[part],
                    "reason": self.reasons.get(part, ""),
                    "log": str(child.spec.log),
                }
                for part, child in self.children.items()
            },
        }
        plan.home.write_state(state)


def _say(text: str) -> None:
    """Write to the supervisor's log, where there is room for it."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


@contextlib.contextmanager
def _wakeups() -> Iterator[int]:
    """A file descriptor that becomes readable when any signal arrives, a child's death (SIGCHLD) among them."""
    receive, send = os.pipe()
    os.set_blocking(receive, False)
    os.set_blocking(send, False)
    before = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    old = signal.set_wakeup_fd(send, warn_on_full_buffer=False)
    try:
        yield receive
    finally:
        signal.set_wakeup_fd(old)
        signal.signal(signal.SIGCHLD, before)
        os.close(receive)
        os.close(send)


def end_leftovers(home: Home) -> None:
    """End what a dead supervisor has left running. Only with the lock held.

    The kernel has told these children to stop; Postgres may still be writing its checkpoint, and is given the time.
    """
    children = home.read_state().get("children", {}).values()
    deadline = time.monotonic() + LEFTOVERS_GRACE_S
    while any(_lives(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    for child in children:
        kill_group(child["pid"], child["created"])
    home.state.unlink(missing_ok=True)


def _lives(child: Mapping[str, Any]) -> bool:
    birth = created_at(child["pid"])
    return birth is not None and abs(birth - child["created"]) < 1.0


def take_over(home: Home) -> IO[str]:
    """The home's lock, with an earlier supervisor's leftovers gone. Raises CannotStart when a stack is up there."""
    home.create()
    lock = home.lock()
    if lock is None:
        raise CannotStart(f"A stack is already up on {home.path}; `python -m deploy.embedded down` ends it.")
    end_leftovers(home)
    return lock


def run(home: Home, variables: Mapping[str, str], parts: tuple[Part, ...]) -> None:
    """Run `up` in the foreground, until a signal has ended it."""

    def request_stop(number: int, frame: FrameType | None) -> None:
        raise StopRequested

    with take_over(home):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, request_stop)
        stack = Stack(layout.plan(home, credentials.load_or_create(home), variables, parts))
        try:
            stack.start()
            print(
                f"kolm is up at {stack.plan.public_url} (logs: {home.logs}); Ctrl-C or `make down` ends it", flush=True
            )
            stack.supervise()
        except StopRequested:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            stack.stop()


class EmbeddedServices:
    """The servers for a `with` block: `with EmbeddedServices() as s: ... s.env["DATABASE_URL"]`.

    By default on free ports, with data that is gone afterwards and never forced to disk. Not restarted when they die: a
    test that kills one says so with `start_part`. Addresses in `variables` (DATABASE_URL, REDIS_URL) are used instead
    of starting the server.
    """

    def __init__(
        self,
        home: Path | None = None,
        services: tuple[str, ...] = ("postgres", "valkey"),
        *,
        variables: Mapping[str, str] | None = None,
        forgetful: bool = True,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="kolm-") if home is None else None
        self.home = Home(path=home or Path(self._temporary.name))  # type: ignore[union-attr]
        self._lock = take_over(self.home)
        base = layout.environ() if variables is None else variables
        wanted = tuple(Part(name) for name in services)
        plan = layout.plan(
            self.home, credentials.load_or_create(self.home), base, wanted, choose=lambda port: free_ports(1)[0]
        )
        self.stack = Stack(plan, forgetful=forgetful)

    @property
    def env(self) -> dict[str, str]:
        """The settings of this installation, the owner's address included; valid before the servers are started."""
        return self.stack.plan.exports()

    def __enter__(self) -> Self:
        self.stack.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.stack.stop()
        self._lock.close()
        if self._temporary is not None:
            self._temporary.cleanup()
