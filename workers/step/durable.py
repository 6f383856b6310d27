"""Durable execution: one compile, carried step by step by whichever process holds its lease.

Nothing here trusts the process to live. A step's effects commit under the lease's fence
(`backend.compiles.leases.fenced_transaction`); a heartbeat thread prolongs the lease and hears of cancellation; what a
dead process left is in the rows. Celery carries wake-ups only: one that is lost is sent again by `workers.upkeep`, one
that comes twice finds the lease taken.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, close_old_connections, connection
from django.utils import timezone

from backend.compiles import leases
from backend.compiles.booking import Fenced
from backend.compiles.events import append_event
from backend.compiles.leases import Lease, LeaseLost
from backend.compiles.models import CompileEvent, StepRun
from backend.domain.lifecycle import StepName, StepStatus
from backend.domain.money.pricing import PriceBook, price_book
from backend.domain.money.teacher_prices import TeacherPrices
from backend.domain.planning.step_outputs import StepOutput
from backend.domain.spec.parsing import Spec
from backend.tenants.isolation import tenant_scope

T = TypeVar("T")
Output = TypeVar("Output", bound=StepOutput)
# SQLSTATEs of a server that is there for nobody: connections, resources (a full disk), shutting down, starting up; and
# of a transaction in the middle of which the server, or this process, was stopped
_AWAY = ("08", "53", "57P01", "57P02", "57P03", "25P03")


class Canceled(Exception):
    """The customer asked to stop."""


@dataclass(slots=True)
class StopSignal:
    """The signals that the heartbeat thread gives the working thread."""

    is_lost: bool = False
    is_canceled: bool = False

    def is_set(self) -> bool:
        return self.is_lost or self.is_canceled

    def check(self) -> None:
        if self.is_lost:
            raise LeaseLost
        if self.is_canceled:
            raise Canceled


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRun:
    """A held compile: the spec, what its teacher costs, the price book that it began with, the lease and the stop
    signal. Handed to every step."""

    lease: Lease
    spec: Spec
    prices: TeacherPrices
    book: PriceBook = field(default_factory=price_book)
    stop: StopSignal = field(default_factory=StopSignal)

    @property
    def tenant_id(self) -> UUID:
        return self.lease.tenant_id

    @property
    def compile_id(self) -> UUID:
        return self.lease.compile_id

    @contextmanager
    def transaction(self) -> Iterator[Fenced]:
        """A transaction that commits only while the lease holds; yields the locked compile with what the
        transaction uses of its money. Begins when the database is
        there: what was made meanwhile, such as a teacher's answers, is not lost."""
        with ExitStack() as stack:
            yield patiently(lambda: stack.enter_context(leases.fenced_transaction(self.lease)), stop=self.stop)

    def step(self, name: StepName) -> StepRun:
        row: StepRun = StepRun.objects.get(tenant_id=self.tenant_id, compile_id=self.compile_id, name=name)
        return row

    def output(self, kind: type[Output]) -> Output:
        """The output of a finished step of the compile. It never changes again, so nothing is locked, inside a
        `transaction` or outside."""

        def read() -> Output:
            with tenant_scope(self.tenant_id):
                return kind.from_json(self.step(kind.STEP).output)

        return patiently(read, stop=self.stop)

    def warn(self, code: str, message: str, **data: Any) -> None:
        """Append a warning event, inside a `transaction`."""
        append_event(self.tenant_id, self.compile_id, "warning", {"code": code, "message": message, **data})

    def warn_once(self, code: str, message: str, **data: Any) -> None:
        """Append a warning event unless the compile has one of this code, inside a `transaction`."""
        events = CompileEvent.objects.filter(tenant_id=self.tenant_id, compile_id=self.compile_id, type="warning")
        if not events.filter(data__code=code).exists():
            self.warn(code, message, **data)

    def progress(self, name: StepName, *, done: int, total: int, message: str) -> None:
        """Show how far a step is, inside the `transaction` that saves it. Further than ever gives the attempts
        back: a long step outlives any number of workers."""
        step = StepRun.objects.filter(tenant_id=self.tenant_id, compile_id=self.compile_id, name=name)
        is_further = step.filter(done__lt=done).exists()
        step.update(done=done, total=total, message=message[:200])
        if is_further:
            leases.note_progress(self.lease)
        data = {"step": name.value, "done": done, "total": total, "message": message[:200]}
        append_event(self.tenant_id, self.compile_id, "step.progress", data)


def is_away(error: BaseException) -> bool:
    """Say whether the database was not there, other than that it refused or broke off this statement."""
    if not isinstance(error, DatabaseError):
        return False
    state = getattr(error.__cause__, "sqlstate", None)
    return isinstance(error, OperationalError | InterfaceError) if state is None else state.startswith(_AWAY)


def patiently(act: Callable[[], T], *, stop: StopSignal) -> T:
    """`act`, again each second while the database is away, for as long as an outage may last. Raises LeaseLost when
    somebody else took the compile over meanwhile."""
    until = time.monotonic() + settings.KOLM_OUTAGE_S
    while True:
        try:
            return act()
        except DatabaseError as error:
            if not is_away(error) or connection.in_atomic_block or time.monotonic() > until:
                raise
        connection.close()
        time.sleep(1.0)
        if stop.is_lost:
            raise LeaseLost


def begin_step(run: CompileRun, name: StepName, *, is_return: bool = False) -> None:
    """Mark a step as running, once; a second start after a crash counts as an attempt, but not the return to what was
    waited for: a runner's result, or (`is_return`) a teacher's batch."""
    with run.transaction():
        step = StepRun.objects.select_for_update().get(tenant_id=run.tenant_id, compile_id=run.compile_id, name=name)
        if step.status != StepStatus.RUNNING:
            append_event(run.tenant_id, run.compile_id, "step.started", {"step": name.value})
            step.started_at = step.started_at or timezone.now()
        step.status = StepStatus.RUNNING
        step.attempts += step.runner_job_id is None and not is_return
        step.save()


class Heartbeat:
    """A thread that prolongs the lease every third of its length until the `with` block ends."""

    def __init__(self, lease: Lease, stop: StopSignal) -> None:
        self._lease = lease
        self._stop = stop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat-{lease.compile_id}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=5)

    def _beat(self) -> None:
        period_s = min(settings.KOLM_COMPILE_LEASE_S / 3, 1.0)
        try:
            while not self._ended.wait(period_s) and not self._stop.is_lost:
                self._prolong()
        finally:
            connection.close()

    def _prolong(self) -> None:
        try:
            close_old_connections()
            if leases.heartbeat(self._lease):
                self._stop.is_canceled = True
        except LeaseLost:
            self._stop.is_lost = True
        except DatabaseError:
            # the database is away for a moment: the lease itself decides whether this work still counts
            connection.close()
