"""Waiting for teacher batches without a process: each look carries every open batch of a compile as far as it goes, and
gives the lease back until the next look.

A batch is uploaded, made a job of, asked about and settled. What the vendor was asked for is written down before, and
its job is looked for before another is asked for: a process that dies anywhere leaves one job, which the next finds.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from uuid import UUID

from django.utils import timezone

from backend.compiles import leases
from backend.compiles.lifecycle import transitions
from backend.compiles.models import TeacherBatch, TeacherCall
from backend.compiles.states import BatchState, CallState
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import CompileStatus, StepName
from workers.step.batch_planning import StepBatches
from workers.step.batch_settling import journal_job, release, requests_of
from workers.step.durable import CompileRun
from workers.step.result import StepWaiting
from workers.step.spending import left_of, pays_teacher_itself, reserve
from workers.step.teacher_calls import write_off
from workers.step.teacher_session import TeacherSession, teacher_session
from workers.teachers.openai_compatible.batch_endpoint import ASK_S, BatchEndpoint, BatchJob
from workers.teachers.protocol import TeacherFailed

log = logging.getLogger("kolm.teachers")

FIRST_LOOK_S, LAST_LOOK_S = 15.0, 600.0  # between looks: a tenth of a batch's age
ON_ITS_WAY = timedelta(seconds=2 * ASK_S)  # after which a job that was asked for, and is not there, will not come
WINDOWS = 2  # of a vendor's silence or of a batch without an end, until the compile fails
CANCEL_FOR = timedelta(minutes=30)  # OpenAI says up to 10 minutes


def send_batches(run: CompileRun, batches: StepBatches) -> StepWaiting:
    """Send what a step has put aside and give the lease back until the first look."""
    with _sessions(run) as session_of:
        batches.send(session_of)
    if not is_waiting(run):  # answered already, or canceled meanwhile
        with run.transaction():
            leases.release(run.lease, due_in_s=0)
    return StepWaiting()


def is_waiting(run: CompileRun) -> bool:
    """Look at the compile's open batches. True after the lease was given back because one of them has no end yet.
    Raises TeacherFailed where a vendor refuses one, and for lines that fail as live calls do."""
    rows = _open_batches(run)
    if not rows:
        return False
    _reserve_again(run)
    with _sessions(run) as session_of:
        failures = [_carry(run, session_of(row.model), row) for row in rows]
    failure = next((failed for failed in failures if failed is not None), None)
    if failure is not None:
        raise failure
    open_rows = [row for row in rows if row.state != BatchState.ENDED]
    with run.transaction() as fenced:
        now = CompileStatus(fenced.compile.status)
        if now == CompileStatus.CANCELING:
            return False
        if not open_rows and now == CompileStatus.AWAITING_BATCH:
            transitions.move(fenced, CompileStatus.RUNNING)
        if open_rows:
            if now == CompileStatus.RUNNING:
                transitions.move(fenced, CompileStatus.AWAITING_BATCH)
            _show(run, open_rows)
            leases.release(run.lease, due_in_s=look_in_s(open_rows))
    return bool(open_rows)


def has_open_batches(tenant_id: UUID, compile_id: UUID) -> bool:
    """Say whether a vendor may have something of a compile, in the caller's transaction."""
    rows = TeacherBatch.objects.filter(tenant_id=tenant_id, compile_id=compile_id)
    return rows.exclude(state=BatchState.ENDED).exists()


def look_in_s(rows: Sequence[TeacherBatch]) -> float:
    """Seconds until the next look at these batches: a tenth of the youngest one's age, within bounds."""
    age_s: float = (timezone.now() - max(row.created_at for row in rows)).total_seconds()
    return min(LAST_LOOK_S, max(FIRST_LOOK_S, age_s / 10))


def _show(run: CompileRun, rows: Sequence[TeacherBatch]) -> None:
    """Show where the batches are, in the step's message; an event only where that has changed."""
    first = min(row.submitted_at or row.created_at for row in rows)
    n_done, n = sum(row.n_done + row.n_failed for row in rows), sum(row.n_requests for row in rows)
    words = ", ".join(sorted({row.vendor_status or row.state for row in rows})).replace("_", " ")
    which = "the teacher's batch" if len(rows) == 1 else f"{len(rows)} batches of the teacher"
    message = f"waits for {which} since {first:%Y-%m-%d %H:%M} UTC: {words}, {n_done} of {n} calls done"
    step = run.step(StepName(rows[0].step))
    if step.message != message:
        run.progress(StepName(step.name), done=step.done, total=step.total, message=message)


def _open_batches(run: CompileRun) -> list[TeacherBatch]:
    with run.transaction():
        rows = TeacherBatch.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        return list(rows.exclude(state=BatchState.ENDED).order_by("created_at"))


def _reserve_again(run: CompileRun, *, within_budget: bool = False) -> None:
    """The end of a compile gave its reservations back; a resumed one finds calls in batches and no money for them.
    Raises PaymentRequired where the budget has not that much; `within_budget` is content with what it has, for calls
    that nobody can take back."""
    with run.transaction() as fenced:
        calls = TeacherCall.objects.filter(
            tenant_id=run.tenant_id, compile_id=run.compile_id, state=CallState.SUBMITTED
        )
        missing = sum(calls.values_list("reserved_microusd", flat=True)) - fenced.compile.reserved_microusd
        if within_budget:
            missing = min(missing, left_of(fenced.compile))
        if missing > 0:
            reserve(fenced.compile, missing)


@contextmanager
def _sessions(run: CompileRun) -> Iterator["_Sessions"]:
    with ExitStack() as stack:
        yield _Sessions(run, stack)


class _Sessions:
    """The teachers of the batches at hand, each opened once."""

    def __init__(self, run: CompileRun, stack: ExitStack) -> None:
        self._run, self._stack = run, stack
        self._open: dict[str, TeacherSession] = {}

    def __call__(self, model: str) -> TeacherSession:
        if model not in self._open:
            self._open[model] = self._stack.enter_context(teacher_session(self._run, model=model))
        return self._open[model]


def _carry(run: CompileRun, session: TeacherSession, row: TeacherBatch) -> TeacherFailed | None:
    """Carry one batch as far as it goes now; the failure that ends the compile. A vendor that does not answer is waited
    for."""
    endpoint = session.batches(run)
    try:
        job = _job_of(run, endpoint, row)
        return journal_job(run, endpoint, row, job) if job is not None and job.has_ended else _overdue(endpoint, row)
    except TeacherFailed as failed:
        if failed.retryable:
            late = _overdue(endpoint, row)
            return None if late is None else failed
        if row.state in (BatchState.PLANNED, BatchState.UPLOADED):
            if row.asked_for_at is None:  # nothing was made; else the job is looked for at the end, or by a resumed one
                release(run, row, reason=failed.code, was_run=False)
        elif failed.code == "teacher_too_large":  # nobody will read its files
            _abandon(run, row)
        return failed


def _overdue(endpoint: BatchEndpoint, row: TeacherBatch) -> TeacherFailed | None:
    hours = WINDOWS * endpoint.terms.window_h
    if timezone.now() - row.created_at < timedelta(hours=hours):
        return None
    return TeacherFailed(
        f"The teacher {row.model} has not ended a batch within {hours} hours; it is canceled. Resume the compile: what "
        "it answered is kept, and the rest is sent again.",
        code="teacher_timeout",
    )


def _job_of(run: CompileRun, endpoint: BatchEndpoint, row: TeacherBatch) -> BatchJob | None:
    """The vendor's job of a batch as it is now, made if there is none; None while it is not known whether there is."""
    if row.state == BatchState.PLANNED:
        lines = [request.line(endpoint.terms.url) for request in requests_of(run, row).values()]
        row.input_file = endpoint.upload(b"".join(lines))
        _save(run, row, BatchState.UPLOADED)
    if row.state == BatchState.UPLOADED:
        job = _find_or_make(run, endpoint, row)
        if job is None:
            return None
        row.vendor_id, row.submitted_at = job.id, timezone.now()
        _note(row, job)
        _save(run, row, BatchState.SUBMITTED)
    job = endpoint.get(row.vendor_id)
    _note(row, job)
    _save(run, row)
    return job


def _find_or_make(run: CompileRun, endpoint: BatchEndpoint, row: TeacherBatch) -> BatchJob | None:
    """The job of an uploaded file. One that was asked for is looked for first, for as long as it may be on its way."""
    if row.asked_for_at is not None:
        job = endpoint.find(row.input_file)
        if job is not None or timezone.now() - row.asked_for_at < ON_ITS_WAY:
            return job
    row.asked_for_at = timezone.now()
    _save(run, row)
    try:
        return endpoint.create(row.input_file, str(row.id))
    except TeacherFailed as failed:
        if failed.code == "teacher_rejected":  # a refused request made none
            row.asked_for_at = None
            _save(run, row)
        raise


def _note(row: TeacherBatch, job: BatchJob) -> None:
    row.vendor_status = job.status
    row.n_done, row.n_failed = min(job.n_done, row.n_requests), min(job.n_failed, row.n_requests)


def _save(run: CompileRun, row: TeacherBatch, to: BatchState | None = None) -> None:
    if to is not None:
        row.move(to)
    with run.transaction():
        row.save()


def winds_down(run: CompileRun) -> bool:
    """Stop the batches of a compile that is being canceled. True after the lease was given back because the vendor has
    not stopped yet; what it finished by then is journaled and paid, as a resumed compile will find it."""
    open_rows = _stop_all(run)
    if open_rows:
        with run.transaction():
            _show(run, open_rows)
            leases.release(run.lease, due_in_s=FIRST_LOOK_S)
    return bool(open_rows)


def wind_down_ended(run: CompileRun) -> None:
    """Stop the batches of a compile that has failed or expired, as those of a canceled one, and look again until the
    vendor has stopped. Its status, steps and events have ended: only journal and money move, within the budget."""
    _reserve_again(run, within_budget=True)
    open_rows = _stop_all(run)
    with run.transaction():
        leases.release(run.lease, due_in_s=FIRST_LOOK_S if open_rows else None)


def _stop_all(run: CompileRun) -> list[TeacherBatch]:
    """The batches that are still open after the vendor was asked to stop each of them. Whatever fails for longer than a
    vendor takes to stop, a key that was deleted, a file that is gone, is waited for no more."""
    rows = _open_batches(run)
    for row in rows:
        if row.cancel_asked_at is None:
            row.cancel_asked_at = timezone.now()
            _save(run, row)
        try:
            with _sessions(run) as session_of:
                _stop(run, session_of(row.model).batches(run), row)
        except (TeacherFailed, CustomerError):
            pass
        except Exception:
            if not _is_abandoned(row):
                raise
            log.exception("a teacher's batch is not waited for any more", extra={"compile": str(run.compile_id)})
            with run.transaction():
                row.refresh_from_db()
        if row.state != BatchState.ENDED and _is_abandoned(row):
            _abandon(run, row)
    return [row for row in rows if row.state != BatchState.ENDED]


def _is_abandoned(row: TeacherBatch) -> bool:
    return row.cancel_asked_at is not None and timezone.now() - row.cancel_asked_at > CANCEL_FOR


def _stop(run: CompileRun, endpoint: BatchEndpoint, row: TeacherBatch) -> None:
    if row.state != BatchState.SUBMITTED:
        job = None if row.asked_for_at is None else endpoint.find(row.input_file)
        if job is None:
            if row.asked_for_at is None or timezone.now() - row.asked_for_at > ON_ITS_WAY:
                release(run, row, was_run=False, reason="canceled")
            return
        row.vendor_id, row.submitted_at = job.id, timezone.now()
        _save(run, row, BatchState.SUBMITTED)
    job = endpoint.get(row.vendor_id)
    if not job.has_ended and job.status != "cancelling":
        endpoint.cancel(row.vendor_id)
        job = endpoint.get(row.vendor_id)
    _note(row, job)
    _save(run, row)
    if job.has_ended:
        journal_job(run, endpoint, row, job)


def _abandon(run: CompileRun, row: TeacherBatch) -> None:
    """Write off the calls of a batch that nobody can ask about any more, at what was set aside for them."""
    with run.transaction() as fenced:
        calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, batch_id=row.id, state=CallState.SUBMITTED)
        for call in calls:
            write_off(fenced, call, is_own_key=pays_teacher_itself(run.spec))
    release(run, row, was_run=False, reason="canceled")
