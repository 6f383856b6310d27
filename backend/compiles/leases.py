"""The lease of whoever works on a compile: claim, heartbeat, fence, release. Times are the database's, so that no
process's clock matters.

A claim raises the fence by one. Every effect of a step commits in a transaction that first locks the lease row and
finds its own fence there (`fenced_transaction`); a process that was stopped past its lease finds another's and writes
nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from backend.compiles.booking import Fenced
from backend.compiles.models import Compile, Outbox
from backend.queue import TaskName, enqueue
from backend.tenants.isolation import tenant_scope


class LeaseLost(Exception):
    """Another process took this compile over: stop at once and write nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    tenant_id: UUID
    compile_id: UUID
    fence: int
    attempts: int


def create_lease(tenant_id: UUID, compile_id: UUID) -> None:
    """Make the compile due now, in the caller's transaction, with the message that will start it."""
    _execute(
        "INSERT INTO compiles_compilelease (compile_id, tenant_id, fence, owner, due_at, attempts, cancel_requested)"
        " VALUES (%s, %s, 0, '', now(), 0, false)",
        [compile_id, tenant_id],
    )
    wake_worker(tenant_id, compile_id)


def wake_worker(tenant_id: UUID, compile_id: UUID) -> None:
    """Put "look at this compile" into the outbox, in the caller's transaction; it is sent on commit, and again by the
    relay if that failed."""
    ids = {"tenant_id": str(tenant_id), "compile_id": str(compile_id)}
    row = Outbox.objects.create(task=TaskName.ADVANCE, ids=ids)

    def send() -> None:
        if enqueue(TaskName.ADVANCE, **ids):
            Outbox.objects.filter(pk=row.pk).update(sent_at=timezone.now())

    transaction.on_commit(send, robust=True)  # the commit stands; the relay sends what this could not


def claim(compile_id: UUID, *, owner: str) -> Lease | None:
    """Take the compile if it is due and nobody holds it; None otherwise. A retry after a crash counts as an attempt."""
    row = _execute(
        "UPDATE compiles_compilelease SET fence = fence + 1, owner = %s, attempts = attempts + 1,"
        " lease_until = now() + make_interval(secs => %s)"
        " WHERE compile_id = %s AND due_at <= now() AND (lease_until IS NULL OR lease_until < now())"
        " RETURNING tenant_id, fence, attempts",
        [owner[:100], settings.KOLM_COMPILE_LEASE_S, compile_id],
    )
    if row is None:
        return None
    return Lease(tenant_id=row[0], compile_id=compile_id, fence=row[1], attempts=row[2])


def heartbeat(lease: Lease) -> bool:
    """Prolong the lease; True when the customer asked to cancel. Raises LeaseLost."""
    row = _execute(
        "UPDATE compiles_compilelease SET lease_until = now() + make_interval(secs => %s)"
        " WHERE compile_id = %s AND fence = %s AND lease_until IS NOT NULL RETURNING cancel_requested",
        [settings.KOLM_COMPILE_LEASE_S, lease.compile_id, lease.fence],
    )
    if row is None:
        raise LeaseLost
    return bool(row[0])


@contextmanager
def fenced_transaction(lease: Lease) -> Iterator[Fenced]:
    """Open one transaction in the tenant's scope that commits only if this lease still holds; yield the locked compile,
    with what the transaction uses of its money; that is booked at the end."""
    with tenant_scope(lease.tenant_id):
        row = _execute(
            "SELECT 1 FROM compiles_compilelease WHERE compile_id = %s AND fence = %s AND lease_until IS NOT NULL"
            " FOR UPDATE",
            [lease.compile_id, lease.fence],
        )
        if row is None:
            raise LeaseLost
        compile = Compile.objects.select_for_update().get(tenant_id=lease.tenant_id, id=lease.compile_id)
        fenced = Fenced.around(compile)
        yield fenced
        fenced.unbooked.book()


def release(lease: Lease, *, due_in_s: float | None, is_retry: bool = False) -> None:
    """Give the lease back inside a `fenced_transaction`. `due_in_s`: look again then (0 at once); None when the compile
    has ended."""
    _execute(
        "UPDATE compiles_compilelease SET lease_until = NULL, owner = '',"
        " attempts = CASE WHEN %s THEN 0 ELSE attempts END, away_since = NULL,"
        " due_at = now() + make_interval(secs => %s) WHERE compile_id = %s AND fence = %s",
        [not is_retry, due_in_s, lease.compile_id, lease.fence],
    )


def away_for_s(lease: Lease, *, anew: bool) -> float:
    """Seconds for which a store has been away from this compile, which starts waiting for it now if it did not yet, or
    `anew`. Inside a `fenced_transaction`."""
    row = _execute(
        "UPDATE compiles_compilelease SET away_since = CASE WHEN %s THEN now() ELSE coalesce(away_since, now()) END"
        " WHERE compile_id = %s AND fence = %s RETURNING extract(epoch FROM now() - away_since)",
        [anew, lease.compile_id, lease.fence],
    )
    return float(row[0]) if row else 0.0  # type: ignore[arg-type]


def release_until_back(lease: Lease, *, due_in_s: float) -> None:
    """Give the lease back inside a `fenced_transaction` because a store is away: this claim is no attempt."""
    _execute(
        "UPDATE compiles_compilelease SET lease_until = NULL, owner = '', attempts = greatest(attempts - 1, 0),"
        " due_at = now() + make_interval(secs => %s) WHERE compile_id = %s AND fence = %s",
        [due_in_s, lease.compile_id, lease.fence],
    )


def wake(tenant_id: UUID, compile_id: UUID) -> None:
    """Make a waiting compile due now and wake a worker for it, in the caller's transaction."""
    _execute(
        "UPDATE compiles_compilelease SET due_at = now(), attempts = 0, away_since = NULL WHERE compile_id = %s",
        [compile_id],
    )
    wake_worker(tenant_id, compile_id)


def lock(compile_id: UUID) -> None:
    """Lock the lease row. Every writer locks the lease before the compile."""
    _execute("SELECT 1 FROM compiles_compilelease WHERE compile_id = %s FOR UPDATE", [compile_id])


def note_progress(lease: Lease) -> None:
    """A step was finished: the attempts so far are forgotten. Inside a `fenced_transaction`."""
    _execute(
        "UPDATE compiles_compilelease SET attempts = 0, away_since = NULL WHERE compile_id = %s AND fence = %s",
        [lease.compile_id, lease.fence],
    )


def attempts_of(lease: Lease) -> int:
    """Claims since the compile last made progress, this one included."""
    row = _execute("SELECT attempts FROM compiles_compilelease WHERE compile_id = %s", [lease.compile_id])
    return int(row[0]) if row else 0  # type: ignore[call-overload]


def request_cancel(compile_id: UUID) -> bool:
    """Ask whoever holds the compile to stop; True when nobody does."""
    row = _execute(
        "UPDATE compiles_compilelease SET cancel_requested = true, due_at = now() WHERE compile_id = %s"
        " RETURNING lease_until IS NULL OR lease_until < now()",
        [compile_id],
    )
    return row is None or bool(row[0])


def retire(compile_id: UUID) -> None:
    """Take an ended compile off the list of what is due."""
    _execute("UPDATE compiles_compilelease SET due_at = NULL, lease_until = NULL WHERE compile_id = %s", [compile_id])


def rearm(tenant_id: UUID, compile_id: UUID) -> None:
    """Make an ended compile due again (resume). The fence rises, so that a straggler of the last run writes nothing."""
    _execute(
        "UPDATE compiles_compilelease SET fence = fence + 1, cancel_requested = false, attempts = 0, away_since = NULL,"
        " lease_until = NULL, due_at = now() WHERE compile_id = %s",
        [compile_id],
    )
    wake_worker(tenant_id, compile_id)


def _execute(sql: str, params: list[object]) -> tuple[object, ...] | None:  # type: ignore[type-arg]
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone() if cursor.description else None
