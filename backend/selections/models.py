"""Selections that customers ask for. Rows, picks and clusters are blobs, none of which two selections share; all of it
is deleted a day after the selection ended."""

from enum import StrEnum

from django.db import models

from backend.runner_jobs.models import RunnerJob
from backend.tenants.isolation import TenantOwned


class SelectionStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"  # never stored: a queued selection whose job a runner holds
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


class Selection(TenantOwned):
    """One `POST /v1/select`. `width` is that of the embeddings, 0 where the rows are texts. Until its job has ended the
    runner's row has the state; `conclusion` brings it here, once."""

    running_job: RunnerJob | None = None  # no column: while a runner holds it, as `conclude` read it

    runner_job_id = models.UUIDField()
    api_key_id = models.UUIDField(null=True)
    status = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in SelectionStatus], default=SelectionStatus.QUEUED
    )
    n = models.IntegerField()
    width = models.IntegerField()
    k = models.IntegerField()
    options = models.JSONField()
    columns_sha256 = models.CharField(max_length=64)
    rows_sha256 = models.CharField(max_length=64)
    result_sha256 = models.CharField(max_length=64, blank=True)
    report = models.JSONField(null=True)
    cohesion_log = models.TextField(blank=True)
    embedder = models.CharField(max_length=200, blank=True)
    is_cancel_requested = models.BooleanField(default=False)
    failure_code = models.CharField(max_length=64, blank=True)
    failure_message = models.TextField(blank=True)
    cost_microusd = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "created_at", "id"], name="selection_by_time")]
