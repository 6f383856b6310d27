"""The retention of what customers sent to be answered: ended `infer` jobs are forgotten, rows and blobs, minutes
later."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from backend.blobs import delete_blob, probe_store, sweep_blob
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus

KEEP_S = 600
WAITED_FOR = (RunnerJobKind.INFER, RunnerJobKind.CHECK_BASE)
ENDED = (RunnerJobStatus.SUCCEEDED, RunnerJobStatus.FAILED, RunnerJobStatus.CANCELED)


def forget_infer_jobs(limit: int = 200) -> int:
    """Delete ended jobs that were waited for (`infer`, and a preflight's `check_base`) with what they were asked and
    what they answered. Returns how many. Raises Unavailable where blobs cannot be deleted just now, before a row
    is."""
    before = timezone.now() - timedelta(seconds=KEEP_S)
    old = RunnerJob.objects.filter(kind__in=WAITED_FOR, status__in=ENDED, ended_at__lt=before)
    jobs = list(old.order_by("ended_at")[:limit])
    if jobs:
        probe_store()
    for job in jobs:
        forget_job(job, forget=sweep_blob)  # the same question may be asked again at this very moment
    return len(jobs)


def forget_job(job: RunnerJob, *, forget: Callable[[UUID, str], object] = delete_blob) -> None:
    """Delete a job with its question and its answer."""
    job.delete()
    for digest in {job.payload_sha256, job.result_sha256, job.error_sha256} - {""}:
        # the same question may have been asked again since: its blob is the same
        same = Q(payload_sha256=digest) | Q(result_sha256=digest) | Q(error_sha256=digest)
        if not RunnerJob.objects.filter(same, tenant_id=job.tenant_id).exists():
            forget(job.tenant_id, digest)
