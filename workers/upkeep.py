"""Upkeep: the loop that makes every loss harmless. `python -m workers.upkeep`

It relays the outbox to Celery, wakes workers again for compiles that are due and held by nobody, ends runner leases
that ran out and compiles that waited too long, shows those who wait for a runner their place, books selections that
nobody looked at, forgets old ones, sweeps expired drafts and uploads that broke off, seals values under a new key and
makes the registry's epochs. It holds nothing in memory that would be missed; two of them do no harm.
"""

import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import django

from backend.compiles.states import CallState
from backend.domain.errors import Unavailable
from backend.domain.jobs.absence import Absence
from backend.domain.log_text import guard_logs
from workers.heartbeat import of_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from backend.compiles.booking import Fenced
    from backend.tenants.key_rotation.resealing import Batch

log = logging.getLogger("kolm.upkeep")

PERIOD_S = 1.0
LOOK_EVERY_S, BREAK_S = 2.0, 10.0  # a third of the usual lease: longer without the database, and some ran out unheard
WAKE_AGAIN_AFTER_S = 5.0
EXPIRE_AFTER_H = 24
KEEP_SENT_H = 24
FIRST_EXPIRY_S = 600.0
SWEEP_EVERY_S = 60.0
SWEEP_UPLOADS_EVERY_S = 600.0
SWEEP_ROWS = 1_000  # of each table in one statement: about a second
RESEAL_S = 0.5  # of a round
RESEAL_EVERY_S = 600.0  # between passes: a process of before may still seal with its key
SWEEP_TURNS = 5  # statements in a row; what is left is swept in the next round


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    django.setup()
    guard_logs()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    started = time.monotonic()
    heartbeat = of_process()
    heartbeat.start()
    while not stop.wait(PERIOD_S):
        heartbeat.turn()
        # after a day without any process every compile looks abandoned: the workers get their chance first
        tick(may_expire=time.monotonic() - started > FIRST_EXPIRY_S)


def tick(*, may_expire: bool = True) -> None:
    """One round of everything; what fails is tried again in the next round and keeps nothing else from its turn."""
    from django.db import Error as DatabaseError
    from django.db import connection

    from backend.billing.schedule import wake_billing_workers
    from backend.compiles.lifecycle.retention import sweep_due
    from backend.registry.epochs import build_due
    from backend.runner_jobs.queue_places import show_places
    from backend.runner_jobs.retention import forget_infer_jobs
    from backend.runner_jobs.turns import forget_turns
    from backend.selections.conclusion import conclude_ended_jobs
    from backend.selections.retention import forget_selections
    from backend.serving.gateway.shadowing import forget_shadow
    from backend.serving.playground import forget_playground
    from backend.serving.runners.pack_feedback import forget_pack_reports
    from backend.serving.runners.servers import forget_servers
    from backend.webhooks.retention import forget_webhooks

    parts = [
        wake_due_compiles,
        relay_outbox,
        expire_runners,
        show_places,
        forget_turns,
        forget_infer_jobs,
        conclude_ended_jobs,
        forget_selections,
        sweep_drafts,
    ]
    parts += [forget_playground, forget_shadow, forget_pack_reports, forget_servers, build_due]
    parts += [sweep_due, erase_tenants, forget_webhooks, wake_billing_workers]
    parts += [attend_accounts, reseal_values, sweep_uploads]
    parts += [expire_compiles] if may_expire else []
    for part in parts:
        try:
            note_presence()
            part()
        except DatabaseError as error:
            log.warning("database away: %s", type(error).__name__)
            connection.close()
        except Unavailable as error:
            log.warning("a store is away: %s", error.code)
        except Exception:
            log.exception("upkeep failed")
            connection.close()


def note_presence() -> None:
    """Look, every other second, whether the database is there: after a time without it no lease is ended at once."""
    if time.monotonic() - absence.seen_at > LOOK_EVERY_S:
        _execute("SELECT 1", [])
        absence.note_presence(time.monotonic())


absence = Absence(break_s=BREAK_S)


def expire_runners() -> int:
    """End the leases of runners that fell silent, once each has had the time to be heard."""
    from django.conf import settings

    from backend.runner_jobs.leases import expire_leases

    is_heard = absence.is_over(time.monotonic(), grace_s=settings.KOLM_RUNNER_LEASE_S)
    return expire_leases() if is_heard else 0


def relay_outbox(limit: int = 200) -> int:
    """Send what the outbox holds; rows stay until Redis took them. Returns how many were sent."""
    from django.db import transaction
    from django.utils import timezone

    from backend.compiles.models import Outbox
    from backend.queue import TaskName, enqueue

    with transaction.atomic():
        rows = list(Outbox.objects.select_for_update(skip_locked=True).filter(sent_at=None).order_by("id")[:limit])
        sent = [row.pk for row in rows if enqueue(TaskName(row.task), **row.ids)]
        Outbox.objects.filter(id__in=sent).update(sent_at=timezone.now())
        _execute("DELETE FROM compiles_outbox WHERE sent_at < now() - make_interval(hours => %s)", [KEEP_SENT_H])
    return len(sent)


def wake_due_compiles() -> int:
    """Wake workers for compiles that are due and that nobody holds, each at most every few seconds: the cure for every
    lost message. After an absence a lease that ran out meanwhile is left for as long as one lasts: its holder may be
    waiting for the same database, with answers in hand."""
    from django.conf import settings

    from backend.queue import TaskName, enqueue

    is_heard = absence.is_over(time.monotonic(), grace_s=settings.KOLM_COMPILE_LEASE_S)
    rows = _execute(
        "UPDATE compiles_compilelease SET hinted_at = now() WHERE compile_id IN ("
        " SELECT compile_id FROM compiles_compilelease"
        " WHERE due_at <= now() AND (lease_until IS NULL OR (%s AND lease_until < now()))"
        " AND (hinted_at IS NULL OR hinted_at < now() - make_interval(secs => %s))"
        " ORDER BY due_at LIMIT 100 FOR UPDATE SKIP LOCKED"
        ") RETURNING tenant_id, compile_id",
        [is_heard, WAKE_AGAIN_AFTER_S],
    )
    for tenant_id, compile_id in rows:
        enqueue(TaskName.ADVANCE, tenant_id=str(tenant_id), compile_id=str(compile_id))
    return len(rows)


def sweep_drafts() -> int:
    """Delete drafts that have expired, of all tenants, once a minute (or once a round while there are more). Returns
    how many rows went."""
    global _next_sweep
    if time.monotonic() < _next_sweep:
        return 0
    n_swept = 0
    for _ in range(SWEEP_TURNS):
        ((n_gone,),) = _execute("SELECT kolm_sweep_drafts(%s)", [SWEEP_ROWS])
        n_swept += n_gone
        if n_gone < SWEEP_ROWS:  # no table can have had more
            _next_sweep = time.monotonic() + SWEEP_EVERY_S
            break
    return n_swept


_next_sweep = 0.0


def sweep_uploads() -> int:
    """Delete blobs that were begun and left, every ten minutes. Returns how many."""
    global _next_uploads
    if time.monotonic() < _next_uploads:
        return 0
    from backend.blobs import sweep_unfinished

    _next_uploads = time.monotonic() + SWEEP_UPLOADS_EVERY_S
    return sweep_unfinished()


_next_uploads = 0.0


def erase_tenants() -> int:
    """Delete what is left of tenants whose owner asked for it; each gets a receipt that this installation signs."""
    from backend.artifacts.signing import sign_document
    from backend.tenants.tenant_data.deletion import RECEIPT_TYPE, erase_due

    return erase_due(lambda payload: sign_document(payload, RECEIPT_TYPE))


def attend_accounts() -> int:
    """Begin the next period of accounts whose last one has ended, and expire grants whose time has come."""
    from backend.tenants.isolation import tenant_scope
    from backend.usage import period

    due = period.due()
    for tenant_id in due:
        with tenant_scope(tenant_id):
            period.roll_over_period(tenant_id)
    return len(due)


def reseal_values() -> int:
    """While there are other sealing keys: seal some more values under the present one. Returns how many."""
    global _pass_of_sealing, _next_pass
    from django.conf import settings

    from backend.tenants.key_rotation.resealing import for_a_while, reseal
    from backend.usage.accounts import all_tenants

    if not settings.KOLM_SEALING_KEYS_OTHER or time.monotonic() < _next_pass:
        return 0
    if _pass_of_sealing is None:
        _pass_of_sealing = reseal(all_tenants())
    going, _pass_of_sealing = _pass_of_sealing, None  # a pass that raises is begun anew
    n_sealed, has_ended = for_a_while(going, RESEAL_S)
    if has_ended:
        _next_pass = time.monotonic() + RESEAL_EVERY_S
    else:
        _pass_of_sealing = going
    if n_sealed:
        log.info("sealed %d values under the present key%s", n_sealed, "; the pass is done" if has_ended else "")
    return n_sealed


_pass_of_sealing: "Iterator[Batch] | None" = None
_next_pass = 0.0


def expire_compiles() -> int:
    """End compiles that made no progress for a day: nobody came to take them. One of which a vendor has a batch stays
    due, for the first worker that comes to stop it and to journal what it answered."""
    from backend.compiles import leases
    from backend.compiles.lifecycle import transitions
    from backend.tenants.isolation import tenant_scope

    forgotten = "greatest(due_at, lease_until) < now() - make_interval(hours => %s) AND due_at IS NOT NULL"
    look = f"SELECT tenant_id, compile_id FROM compiles_compilelease WHERE {forgotten}"
    n_expired = 0
    for tenant_id, compile_id in _execute(f"{look} ORDER BY due_at LIMIT 20", [EXPIRE_AFTER_H]):
        with tenant_scope(tenant_id):
            fenced = transitions.locked_compile(tenant_id, compile_id)
            # somebody may have taken it since the look
            if _execute(f"{look} AND compile_id = %s FOR UPDATE", [EXPIRE_AFTER_H, compile_id]):
                _expire(fenced)
                if _has_open_batches(tenant_id, compile_id):
                    leases.wake(tenant_id, compile_id)
                else:
                    leases.retire(compile_id)
                n_expired += 1
    return n_expired


def _has_open_batches(tenant_id: "UUID", compile_id: "UUID") -> bool:
    from workers.step.batch_wait import has_open_batches  # brings the teachers' clients, which upkeep seldom needs

    return has_open_batches(tenant_id, compile_id)


def _expire(fenced: "Fenced") -> None:
    from django.utils import timezone

    from backend.compiles.lifecycle import transitions
    from backend.compiles.models import StepRun, TeacherCall
    from backend.domain.lifecycle import TERMINAL, CompileStatus, StepStatus
    from backend.runner_jobs.leases import cancel
    from backend.usage.holds import credit_our_fault
    from workers.step.spending import pays_stored_call_itself
    from workers.step.teacher_calls import write_off

    compile = fenced.compile
    if CompileStatus(compile.status) in TERMINAL:
        return
    for call in TeacherCall.objects.filter(tenant_id=compile.tenant_id, compile=compile, state=CallState.STARTED):
        write_off(fenced, call, is_own_key=pays_stored_call_itself(compile.spec, call.key))
    running = StepRun.objects.filter(tenant_id=compile.tenant_id, compile=compile, status=StepStatus.RUNNING)
    for step in running.exclude(runner_job_id=None):
        cancel(step.runner_job_id)
    running.update(status=StepStatus.CANCELED, ended_at=timezone.now())
    if compile.status == CompileStatus.CANCELING:
        transitions.move(fenced, CompileStatus.CANCELED)
    else:
        message = "No worker took this compile for a day. Resume it; what is done stays done."
        transitions.move(fenced, CompileStatus.EXPIRED, failure_code="expired", failure_message=message)
        credit_our_fault(compile.tenant_id, compile.id, "expired")


def _execute(sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall()) if cursor.description else []


if __name__ == "__main__":
    main()
