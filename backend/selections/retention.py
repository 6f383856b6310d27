"""The retention of what customers sent to be selected from: a day after a selection ended it is gone, rows, result and
row."""

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from backend.blobs import delete_blob
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.runner_jobs.retention import ENDED, forget_job
from backend.runner_jobs.wasted_attempts import book_lost_attempt
from backend.selections.conclusion import conclude
from backend.selections.models import Selection
from backend.tenants.isolation import tenant_scope

KEEP = timedelta(hours=24)


def forget_selections(limit: int = 50) -> int:
    """Delete what ended a day ago, and end what no runner took for a day; return how many were deleted. Upkeep calls
    this."""
    before = timezone.now() - KEEP
    jobs = RunnerJob.objects.filter(kind=RunnerJobKind.SELECT)
    for job in jobs.filter(status=RunnerJobStatus.QUEUED, created_at__lt=before).order_by("created_at")[:limit]:
        leases.cancel(job.id)
    old = list(jobs.filter(status__in=ENDED, ended_at__lt=before).order_by("ended_at")[:limit])
    for job in old:
        with tenant_scope(job.tenant_id):
            row = Selection.objects.filter(tenant_id=job.tenant_id, runner_job_id=job.id).first()
            if row is None:
                _forget(job)
            else:
                conclude(row)  # a selection that nobody ever looked at is on the bill all the same
                delete(row)
    return len(old)


def delete(row: Selection) -> None:
    """Delete a selection with everything it has, in its tenant's transaction; a runner at work on it loses its lease.
    The job and the blobs go when the row is gone: should this process die in between, upkeep finds the job."""
    Selection.objects.select_for_update().filter(tenant_id=row.tenant_id, id=row.id).first()
    job = RunnerJob.objects.select_for_update().filter(id=row.runner_job_id).first()
    if job is not None and job.status == RunnerJobStatus.LEASED:
        book_lost_attempt(job)
    row.delete()
    if job is not None:
        transaction.on_commit(lambda: _forget(job))


def _forget(job: RunnerJob) -> None:
    for digest in job.inputs:  # which no other selection has
        delete_blob(job.tenant_id, digest)
    forget_job(job)
