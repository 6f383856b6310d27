"""Leases of runner jobs: offer, claim, heartbeat, report, expire.

A claim gives a fresh token; only its hash is stored, and a later claim replaces it, so a runner that lost its lease is
answered "gone" by the same check that refuses a stranger. Large values travel as blobs named by digest.

A lease that ran out puts the job into the queue and keeps its token: until somebody else takes the job, a sign of life
of its runner brings the lease back, since it may be we who were away. The silence counts once another runner claims.

A job ends after MAX_ATTEMPTS claims in a row that came to nothing. A checkpoint further on than any before gives them
back: a training of hours outlives any number of runners, and one that always dies at the same step does not.
"""

import hashlib
import logging
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Now
from django.utils import timezone

from backend.blobs import get_json, has_blob, put_json
from backend.compiles import leases as compile_leases
from backend.compiles.events import append_event
from backend.compiles.models import StepRun
from backend.domain.errors import KolmError, NotFound, Unavailable
from backend.domain.ids import Prefix, encode_id
from backend.domain.jobs.fair_turns import AT_ONCE, PREEMPTED
from backend.domain.jobs.runner_jobs import Claim, HeartbeatAnswer, Progress, RunnerJobKind, SelectStage
from backend.runner_jobs import own_absence, preemption, turns
from backend.runner_jobs.checkpoints import checkpoint_changes, forget_checkpoint, forget_superseded, warn_unkept
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.runner_jobs.queue_places import leave_queue, pause_in_queue
from backend.runner_jobs.wasted_attempts import book_lost_attempt, not_before
from backend.tenants.isolation import tenant_scope
from backend.wakeups import RUNNERS, announce

log = logging.getLogger("kolm.runner_jobs")

MAX_ATTEMPTS = turns.MAX_ATTEMPTS
STALE_INFER_S = 60.0
MOST_LEFT_S = 1e7


class JobGone(Exception):
    """The token opens no job any more: the lease passed on, the job ended, or the token was never valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    kind: RunnerJobKind
    payload: dict[str, Any]
    inputs: tuple[str, ...]


def offer(tenant_id: UUID, job: Offer, *, compile_id: UUID | None = None, step: str = "") -> RunnerJob:
    """Queue a job in the caller's transaction; waiting runners hear of it on commit."""
    payload = put_json(tenant_id, job.payload)
    row = RunnerJob.objects.create(
        tenant_id=tenant_id,
        compile_id=compile_id,
        step=step,
        kind=job.kind,
        payload_sha256=payload,
        inputs=list(job.inputs),
        weight=1 if job.kind in AT_ONCE else turns.weight_of(tenant_id),
        checkpoint_sha256=_last_checkpoint(compile_id, payload),
    )
    transaction.on_commit(lambda: announce(RUNNERS))
    return row


def _last_checkpoint(compile_id: UUID | None, payload_sha256: str) -> str:
    """Return the checkpoint that an earlier job of this compile with the same work had come to: a resumed compile goes
    on from there."""
    if compile_id is None:
        return ""
    earlier = RunnerJob.objects.filter(compile_id=compile_id, payload_sha256=payload_sha256).exclude(
        checkpoint_sha256=""
    )
    digest = earlier.order_by("-created_at").values_list("checkpoint_sha256", flat=True).first()
    return digest or ""


def claim(runner: str, kinds: list[RunnerJobKind]) -> Claim | None:
    """Hand the runner the queued job of these kinds whose turn it is, or None. Raises Unavailable, with the job still
    queued, while its payload cannot be read."""
    token = secrets.token_urlsafe(32)
    takes_over = own_absence.may_take_over()
    if takes_over:
        for job_id in list(_exhausted_jobs().filter(kind__in=kinds).values_list("id", flat=True)[:20]):
            _give_up(job_id)
    claimant = turns.Claimant(runner=runner[:100], kinds=kinds, takes_over=takes_over)
    with transaction.atomic():
        row = turns.lock_next(claimant)
        if row is None:
            return None
        row.attempts += 1
        RunnerJob.objects.filter(id=row.id).update(
            status=RunnerJobStatus.LEASED,
            attempts=row.attempts,
            attempts_in_vain=row.attempts_in_vain + 1,
            not_before=None,
            preempt_asked_at=None,
            runner=claimant.runner,
            token_sha256=_hash(token),
            started_at=timezone.now(),  # of this attempt
            lease_until=Now() + timedelta(seconds=settings.KOLM_RUNNER_LEASE_S),
        )
        payload = _payload(row)
        checkpoint = row.checkpoint_sha256 or None
        if checkpoint is not None and not has_blob(row.tenant_id, checkpoint):
            checkpoint = None
    if isinstance(payload, KolmError):
        raise payload
    return Claim(
        job_id=encode_id(Prefix.RUNNER_JOB, row.id),
        kind=row.kind,
        token=token,
        payload=payload,
        lease_s=float(settings.KOLM_RUNNER_LEASE_S),
        attempt=row.attempts,
        checkpoint_sha256=checkpoint,
    )


def _payload(row: RunnerJob) -> dict[str, Any] | KolmError:
    """The job's payload, or why there is none: an attempt that is lost, or a job that nobody could work on would stand
    before all others for ever. Raises Unavailable."""
    try:
        value: dict[str, Any] = get_json(row.tenant_id, row.payload_sha256)
    except Unavailable:
        raise
    except KolmError as error:
        return error
    return value


def authenticate(job_id: UUID, token: str) -> RunnerJob:
    """The leased job that this token opens; its lease is brought back where nobody took the job since it ran out.
    Raises JobGone."""
    mine = RunnerJob.objects.filter(id=job_id, token_sha256=_hash(token))
    row = mine.filter(status__in=(RunnerJobStatus.LEASED, RunnerJobStatus.QUEUED)).first()
    if row is not None and row.status == RunnerJobStatus.QUEUED:
        _revive(job_id, token)
        row = mine.filter(status=RunnerJobStatus.LEASED).first()
    if row is None:
        raise JobGone
    return row


def _revive(job_id: UUID, token: str) -> None:
    """The runner is alive after all, and goes on. Its time so far is booked as lost: what it is paid for begins anew,
    under another number in the ledger, and no attempt is used up."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runner_jobs_runnerjob SET status = 'leased', attempts = attempts + 1, started_at = now(),"
            " error_code = '', lease_until = now() + make_interval(secs => %s)"
            " WHERE id = %s AND status = 'queued' AND token_sha256 = %s",
            [settings.KOLM_RUNNER_LEASE_S, job_id, _hash(token)],
        )


def heartbeat(job_id: UUID, token: str, progress: Progress) -> HeartbeatAnswer:
    """Prolong the lease and show the progress in the compile's events; the answer says whether the job is to stop.
    Raises JobGone."""
    job = authenticate(job_id, token)
    with tenant_scope(job.tenant_id):
        if job.compile_id is not None:
            compile_leases.lock(job.compile_id)
        changed = RunnerJob.objects.filter(id=job_id, status=RunnerJobStatus.LEASED, token_sha256=_hash(token))
        if not changed.update(
            **checkpoint_changes(job, progress),
            stage=progress.note if progress.note in set(SelectStage) else "",
            done=progress.step,
            total=progress.n_steps,
            **_estimate(progress),
        ):
            raise JobGone
        _prolong(job_id)
        before = job.checkpoint_sha256
        job.refresh_from_db(fields=["cancel_requested", "checkpoint_sha256", "checkpoint_step", "attempts_in_vain"])
        # a job is canceled with its compile: whose last event is told, or whose step another job now has
        if job.compile_id is not None and not job.cancel_requested:
            leave_queue(job)
            if progress.n_steps > 0:
                _show(job, progress)
                warn_unkept(job, progress)
        forget_superseded(job, before)
        preempt = not job.cancel_requested and preemption.must_give_way(job)
    return HeartbeatAnswer(cancel=job.cancel_requested, preempt=preempt, lease_s=float(settings.KOLM_RUNNER_LEASE_S))


def _estimate(progress: Progress) -> dict[str, Any]:
    """Return the runner's own estimate of what is left of the job, where it gives one."""
    if progress.eta_s is None:
        return {}
    return {"left_s": min(max(0.0, progress.eta_s), MOST_LEFT_S), "left_at": timezone.now()}


def report_success(job_id: UUID, token: str, result: dict[str, Any]) -> None:
    """Keep the result and wake the compile, at once. Raises JobGone."""
    job = authenticate(job_id, token)
    digest = put_json(job.tenant_id, result)
    _end(job, token, status=RunnerJobStatus.SUCCEEDED, result_sha256=digest)
    with tenant_scope(job.tenant_id):
        forget_checkpoint(job)


def report_failure(job_id: UUID, token: str, *, code: str, message: str, is_retryable: bool) -> None:
    """Queue the job again while attempts are left, after a pause where the reason has to pass, else end it as failed.
    One that was asked to give way, and does, has lost nothing: no attempt, and no time that were wasted. Raises
    JobGone."""
    job = authenticate(job_id, token)
    gives_way = code == PREEMPTED and job.preempt_asked_at is not None and not job.attempts_in_vain
    # what a runner says may quote the tenant's texts: it goes where they are, not into this shared table
    error = {"error_code": code, "error_sha256": put_json(job.tenant_id, {"message": message[:2000]})}
    if gives_way:
        error = {"error_code": "", "error_sha256": ""}
    if is_retryable and job.attempts_in_vain < MAX_ATTEMPTS and job.kind != RunnerJobKind.INFER:
        with tenant_scope(job.tenant_id):
            if job.compile_id is not None:
                compile_leases.lock(job.compile_id)
            # one statement: a cancel that comes in between must not leave a queued job behind
            mine = RunnerJob.objects.filter(id=job_id, token_sha256=_hash(token), cancel_requested=False)
            again = {"status": RunnerJobStatus.QUEUED, "not_before": not_before(code, job.attempts_in_vain)}
            is_queued = mine.update(token_sha256="", lease_until=None, **again, **error)
            if is_queued:
                turns.note_turn(job)
                pause_in_queue(job) if gives_way else book_lost_attempt(job)
        if is_queued:
            announce(RUNNERS)
            return
    job.refresh_from_db()
    status = RunnerJobStatus.CANCELED if job.cancel_requested else RunnerJobStatus.FAILED
    _end(job, token, status=status, **error)


def cancel(job_id: UUID) -> None:
    """Stop a job in the caller's transaction: a queued one ends now, a leased one hears of it at its next heartbeat.
    One statement, as a runner may hand the job back or take it at this very moment."""
    is_queued = Q(status=RunnerJobStatus.QUEUED)
    RunnerJob.objects.filter(id=job_id, status__in=(RunnerJobStatus.QUEUED, RunnerJobStatus.LEASED)).update(
        cancel_requested=True,
        status=Case(When(is_queued, then=Value(RunnerJobStatus.CANCELED.value)), default=F("status")),
        ended_at=Case(When(is_queued, then=Now()), default=F("ended_at")),
    )


def expire_leases() -> int:
    """Queue again what a silent runner left behind; end what was to be canceled, and what had no attempt left and no
    runner came to ask for. Returns how many leases had run out."""
    with connection.cursor() as cursor:
        # its caller waits for half a minute: no runner should spend its time on an answer that nobody reads
        cursor.execute(
            "UPDATE runner_jobs_runnerjob SET status = 'canceled', ended_at = now()"
            " WHERE status = 'queued' AND kind IN ('infer', 'check_base')"
            " AND created_at < now() - make_interval(secs => %s)",
            [STALE_INFER_S],
        )
        cursor.execute(
            "SELECT id FROM runner_jobs_runnerjob WHERE status = 'leased' AND lease_until < now() LIMIT 100", []
        )
        ids = [row[0] for row in cursor.fetchall()]
    long_ago = timezone.now() - timedelta(seconds=settings.KOLM_OUTAGE_S)
    exhausted = list(_exhausted_jobs().filter(lease_until__lt=long_ago).values_list("id", flat=True)[:100])
    for end, job_id in [*((_expire, id) for id in ids), *((_give_up, id) for id in exhausted)]:
        try:
            end(job_id)
        except DatabaseError as error:  # its compile's lock is taken: in the next round, and the others now
            log.warning("the lease of job %s was not ended: %s", job_id, type(error).__name__)
    return len(ids)


def _expire(job_id: UUID) -> None:
    job = RunnerJob.objects.get(id=job_id)
    with tenant_scope(job.tenant_id):
        if job.compile_id is not None:
            compile_leases.lock(job.compile_id)
            job.refresh_from_db()
        is_final = job.cancel_requested or job.kind == RunnerJobKind.INFER
        status = RunnerJobStatus.CANCELED if job.cancel_requested else RunnerJobStatus.FAILED
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE runner_jobs_runnerjob SET status = %s, error_code = 'runner_lost', error_sha256 = '',"
                " token_sha256 = CASE WHEN %s THEN '' ELSE token_sha256 END, ended_at = CASE WHEN %s THEN now() END"
                " WHERE id = %s AND status = 'leased' AND lease_until < now()",
                [status if is_final else RunnerJobStatus.QUEUED, is_final, is_final, job_id],
            )
            if cursor.rowcount == 0:
                return
        turns.note_turn(job)
        book_lost_attempt(job)
        if not job.cancel_requested:
            then = "unless it comes back, the job goes to another one from its last checkpoint"
            _warn_lost(job, "it had no attempt left" if is_final else then, is_final=is_final)
    announce(RUNNERS)


def _exhausted_jobs() -> QuerySet[RunnerJob]:
    """Jobs whose last attempt fell silent."""
    silent = RunnerJob.objects.filter(status=RunnerJobStatus.QUEUED, attempts_in_vain__gte=MAX_ATTEMPTS)
    return silent.exclude(token_sha256="")


def _give_up(job_id: UUID) -> None:
    """End a job that is still exhausted."""
    job = RunnerJob.objects.get(id=job_id)
    with tenant_scope(job.tenant_id):
        if job.compile_id is not None:
            compile_leases.lock(job.compile_id)
        ended = {"status": RunnerJobStatus.FAILED, "token_sha256": "", "lease_until": None, "ended_at": timezone.now()}
        if _exhausted_jobs().filter(id=job_id).update(**ended):
            _warn_lost(job, "it had no attempt left", is_final=True)


def _warn_lost(job: RunnerJob, then: str, *, is_final: bool) -> None:
    """Tell the compile, and wake it when it is to take the end into account."""
    if job.compile_id is None:
        return
    if is_final:
        compile_leases.wake(job.tenant_id, job.compile_id)
    text = f"The runner {job.runner} stopped answering; {then}."
    append_event(job.tenant_id, job.compile_id, "warning", {"code": "runner_lost", "message": text, "step": job.step})


def result_of(job: RunnerJob) -> dict[str, Any]:
    """The result of a succeeded job. Raises NotFound when it has none."""
    if not job.result_sha256:
        raise NotFound("The job has no result.")
    value: dict[str, Any] = get_json(job.tenant_id, job.result_sha256)
    return value


def error_of(job: RunnerJob) -> str:
    """Return what is known of a job that did not succeed, as a sentence."""
    if job.error_sha256:
        return str(get_json(job.tenant_id, job.error_sha256)["message"])
    return "The runner stopped answering." if job.error_code == "runner_lost" else f"Its job is {job.status}."


def _end(job: RunnerJob, token: str, *, status: RunnerJobStatus, **changes: str) -> None:
    with tenant_scope(job.tenant_id):
        if job.compile_id is not None:
            compile_leases.lock(job.compile_id)
        row = RunnerJob.objects.filter(id=job.id, status=RunnerJobStatus.LEASED, token_sha256=_hash(token))
        if not row.update(status=status, token_sha256="", lease_until=None, ended_at=timezone.now(), **changes):
            raise JobGone
        turns.note_turn(job)
        if status != RunnerJobStatus.SUCCEEDED:
            book_lost_attempt(job)
        if job.compile_id is not None:
            compile_leases.wake(job.tenant_id, job.compile_id)
    announce(job.id)


def _show(job: RunnerJob, progress: Progress) -> None:
    StepRun.objects.filter(tenant_id=job.tenant_id, compile_id=job.compile_id, name=job.step).update(
        done=progress.step, total=progress.n_steps, message=progress.note[:200]
    )
    data: dict[str, Any] = {
        "step": job.step,
        "done": progress.step,
        "total": progress.n_steps,
        "message": progress.note[:200],
    }
    if progress.loss is not None:
        data["loss"] = progress.loss
    if progress.eta_s is not None:
        data["eta_s"] = progress.eta_s
    assert job.compile_id is not None
    append_event(job.tenant_id, job.compile_id, "step.progress", data)


def _prolong(job_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runner_jobs_runnerjob SET lease_until = now() + make_interval(secs => %s) WHERE id = %s",
            [settings.KOLM_RUNNER_LEASE_S, job_id],
        )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
