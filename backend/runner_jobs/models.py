"""Work for runners. The row holds ids, digests and times alone, so that the lease API can serve runners across tenants;
what the tenant wrote lies in the tenant's blobs."""

from enum import StrEnum

from django.db import models

from backend.domain.jobs.runner_jobs import RunnerJobKind, SelectStage
from backend.rest.new_ids import new_uuid7


class RunnerJobStatus(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


_IS_QUEUED = models.Q(status=RunnerJobStatus.QUEUED.value)


class Runner(models.Model):
    """A runner as it reports itself: `report` is `base_checks.RunnerReport`. One that has not reported for minutes is
    not counted on."""

    name = models.CharField(max_length=100, primary_key=True)
    report = models.JSONField()
    seen_at = models.DateTimeField()


class RunnerJob(models.Model):
    """`stage`, `done` and `total` are the progress of a job that belongs to no compile. `settled_at`: when whoever
    ordered such a job has taken its end into account. `attempts_in_vain` are the claims since the checkpoint last
    advanced, which `checkpoint_step` measures: the furthest step at which one was handed over. `not_before`: when a
    queued job may be claimed, where that is not at once.

    For its turn (`turns`): the `weight` of the tenant's plan when the job was offered; since when it has been
    `queued_at` (null: since its creation), how many seconds runners had worked on it before (`ran_s`), what was left at
    the last sign of life (`left_s`, at `left_at`), and when its runner was asked to give it back
    (`preempt_asked_at`)."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    tenant_id = models.UUIDField()
    compile_id = models.UUIDField(null=True)
    step = models.CharField(max_length=32, blank=True)
    kind = models.CharField(max_length=16, choices=[(k.value, k.value) for k in RunnerJobKind])
    status = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in RunnerJobStatus], default=RunnerJobStatus.QUEUED
    )
    payload_sha256 = models.CharField(max_length=64)
    inputs = models.JSONField(default=list)
    attempts = models.IntegerField(default=0)
    attempts_in_vain = models.IntegerField(default=0, db_default=0)
    runner = models.CharField(max_length=100, blank=True)
    token_sha256 = models.CharField(max_length=64, blank=True)
    lease_until = models.DateTimeField(null=True)
    not_before = models.DateTimeField(null=True)
    cancel_requested = models.BooleanField(default=False)
    checkpoint_sha256 = models.CharField(max_length=64, blank=True)
    checkpoint_step = models.IntegerField(default=0, db_default=0)
    weight = models.IntegerField(default=1, db_default=1)
    queued_at = models.DateTimeField(null=True)
    ran_s = models.FloatField(default=0.0, db_default=0.0)
    left_s = models.FloatField(null=True)
    left_at = models.DateTimeField(null=True)
    preempt_asked_at = models.DateTimeField(null=True)
    result_sha256 = models.CharField(max_length=64, blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    error_sha256 = models.CharField(max_length=64, blank=True)
    stage = models.CharField(max_length=16, blank=True, choices=[(s.value, s.value) for s in SelectStage])
    done = models.IntegerField(default=0)
    total = models.IntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["status", "kind", "created_at"], name="runner_job_queue"),
            models.Index(fields=["tenant_id", "created_at", "id"], name="runner_job_heads", condition=_IS_QUEUED),
            models.Index(
                fields=["kind"], name="runner_job_exhausted", condition=_IS_QUEUED & models.Q(attempts_in_vain__gte=4)
            ),
        ]


class RunnerTurn(models.Model):
    """A time for which a job held a runner, written when it ended. Kept for as long as it counts for the tenant's next
    turn (`fair_turns.WINDOW_S`)."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    tenant_id = models.UUIDField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["ended_at"], name="runner_turn_lately")]


class RunnerPlace(models.Model):
    """The line about its place that the owner of a waiting job was shown last. Not a column of the job: a claim passes
    over a job whose row somebody has locked, and its tenant would lose a turn whenever it was shown a place."""

    job_id = models.UUIDField(primary_key=True)
    words = models.CharField(max_length=200)
    shown_at = models.DateTimeField()
