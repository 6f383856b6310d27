"""The checkpoints of jobs: which one a job goes on from, what a compile hears of one that could not be kept, and the
end of those that are not needed any more (a gigabyte every few minutes, where the base is large)."""

import logging
from typing import Any
from uuid import UUID

from django.db import transaction

from backend.blobs import blob_parts, delete_blob, has_blob
from backend.compiles.events import append_event
from backend.domain.errors import KolmError, Unavailable
from backend.domain.jobs.blob_transfers import CHECKPOINT_MARK, UNKEPT_WHY, Unkept
from backend.domain.jobs.runner_jobs import Progress
from backend.runner_jobs.models import RunnerJob

log = logging.getLogger("kolm.runner_jobs")


def checkpoint_changes(job: RunnerJob, progress: Progress) -> dict[str, Any]:
    """Return what a heartbeat changes of the job's checkpoint. One that is further on than any before gives the
    attempts back; the step is compared, since a job that dies at the same place may write other bytes there each
    time."""
    digest = progress.checkpoint_sha256
    if digest == job.checkpoint_sha256 or not _is_kept(job.tenant_id, digest):
        return {}
    step = progress.checkpoint_step or progress.step
    if step <= job.checkpoint_step:
        return {"checkpoint_sha256": digest}
    return {"checkpoint_sha256": digest, "checkpoint_step": step, "attempts_in_vain": 0}


def _is_kept(tenant_id: UUID, checkpoint_sha256: str | None) -> bool:
    """A checkpoint that is not in the store would fail every runner that is told to go on from it. While the store is
    away none is: a heartbeat keeps the lease without it, and brings it again."""
    try:
        return bool(checkpoint_sha256) and has_blob(tenant_id, str(checkpoint_sha256))
    except Unavailable:
        return False


def warn_unkept(job: RunnerJob, progress: Progress) -> None:
    """Tell the compile of a checkpoint that was not kept: the training goes on, and a restart would lose more."""
    if job.compile_id is None or progress.unkept not in set(Unkept):
        return
    begin = f"from step {job.checkpoint_step}" if job.checkpoint_sha256 else "from its beginning"
    append_event(
        job.tenant_id,
        job.compile_id,
        "warning",
        {
            "code": "checkpoint_not_kept",
            "message": f"A checkpoint of {progress.unkept_bytes:,} bytes at step {progress.step} was not kept: "
            f"{UNKEPT_WHY[Unkept(progress.unkept)]}. The training goes on without it; should its runner stop, it "
            f"would begin again {begin}.",
            "step": job.step,
        },
    )


def forget_superseded(job: RunnerJob, before: str) -> None:
    """Delete the checkpoint of before once the transaction that names the next one has committed."""
    if before and before != job.checkpoint_sha256 and not _is_named(job, before):
        transaction.on_commit(lambda: _forget(job.tenant_id, before))


def forget_checkpoint(job: RunnerJob) -> None:
    """Delete the last checkpoint of a job that has succeeded."""
    digest = job.checkpoint_sha256
    if digest and not _is_named(job, digest):
        RunnerJob.objects.filter(id=job.id, checkpoint_sha256=digest).update(checkpoint_sha256="")
        transaction.on_commit(lambda: _forget(job.tenant_id, digest))


def _is_named(job: RunnerJob, digest: str) -> bool:
    """Say whether another job would go on from it."""
    same = RunnerJob.objects.filter(tenant_id=job.tenant_id, checkpoint_sha256=digest)
    return same.exclude(id=job.id).exists()


def _forget(tenant_id: UUID, digest: str) -> None:
    """Only what looks like a checkpoint goes: a runner may have named any blob of the tenant as its own."""
    try:
        head = next(blob_parts(tenant_id, digest, part_bytes=8 + len(CHECKPOINT_MARK)), b"")
        if head[8:] == CHECKPOINT_MARK:
            delete_blob(tenant_id, digest)
    except KolmError as error:  # an orphan costs disk, never truth
        log.warning("a checkpoint that is not needed any more was not deleted: %s", error.code)
