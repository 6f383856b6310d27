"""The questions of the playground; deployments with their history, their numbers and their shadow; what serving found
out about recipe packs; the servers."""

from enum import StrEnum
from typing import ClassVar

from django.db import models
from django.utils import timezone

from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import TenantOwned
from backend.tenants.sealing import SealedField

# What sealed values are bound to, beside their tenant.
SHADOW = b"shadow"
PACK_REPORT = b"pack_report"


class AnswerState(StrEnum):
    """The state of the teacher's side; the students' is there from the start."""

    NOT_ASKED = "not_asked"
    QUEUED = "queued"
    ASKED = "asked"
    ANSWERED = "answered"
    FAILED = "failed"


class PlaygroundAnswer(TenantOwned):
    """One try. `students` are the answers of artifacts, `votes` how often the teacher said what; both are hostile text.
    `label` is what it agreed on: a label, or the answer of a json or text task. A day later the row is gone: what
    people type is theirs."""

    artifact_id = models.UUIDField()
    compile_id = models.UUIDField()
    text = models.TextField()
    students = models.JSONField(default=list)
    state = models.CharField(max_length=12, choices=[(s.value, s.value) for s in AnswerState])
    model = models.CharField(max_length=200, blank=True)
    label = models.TextField(blank=True)
    votes = models.JSONField(default=list)
    latency_ms = models.IntegerField(default=0)
    cost_microusd = models.BigIntegerField(default=0)
    message = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "created_at", "id"], name="playground_by_time"),
            models.Index(fields=["created_at"], name="playground_ttl"),
        ]


class Deployment(TenantOwned):
    """A name under which an artifact answers (`model` of the OpenAI-compatible API). `version` counts its changes, each
    of which is a DeploymentRevision. The base is that of the artifact that answers; `task_type` never changes.
    `regression_version` is the version of which a regression was told."""

    name = models.CharField(max_length=64)
    base_id = models.CharField(max_length=200)
    base_sha256 = models.CharField(max_length=64)
    task_type = models.CharField(max_length=16)
    artifact_id = models.UUIDField()
    previous_artifact_id = models.UUIDField(null=True)
    canary_artifact_id = models.UUIDField(null=True)
    canary_share_ppm = models.IntegerField(default=0)
    idle_minutes = models.IntegerField(default=0)
    is_pinned = models.BooleanField(default=False)
    max_concurrent = models.IntegerField(default=32)
    shadow_share_ppm = models.IntegerField(default=0)
    shadow_microusd_per_day = models.BigIntegerField(default=0)
    drift_margin_ppm = models.IntegerField(default=50_000)
    drift_rollback = models.BooleanField(default=False)
    tags = models.JSONField(default=dict, db_default={})  # cost tags of what it answers from now on
    version = models.IntegerField(default=1)
    regression_version = models.IntegerField(default=0)
    draining_since = models.DateTimeField(null=True)
    answering_since = models.DateTimeField(default=timezone.now)  # the primary artifact
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id", "name"], name="deployment_name_once")]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "created_at", "id"], name="deployment_by_time")]


class DeploymentRevision(TenantOwned):
    """One change of a deployment: what was done, by whom, and how it stood then. Append-only."""

    deployment_id = models.UUIDField()
    version = models.IntegerField()
    action = models.CharField(max_length=16)
    actor_kind = models.CharField(max_length=16)
    actor_id = models.CharField(max_length=64, blank=True)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "deployment_id", "version"], name="deployment_revision_once")
        ]


class DeploymentHour(TenantOwned):
    """The answers of one artifact of a deployment in one hour (UTC); `n_rule` of the requests were a rule's, without a
    model. `first_token` and `total` are histograms of `domain.serving.deployments`; `ran` the engines that answered.
    The shadow's numbers are sums of comparisons with the teacher."""

    deployment_id = models.UUIDField()
    artifact_id = models.UUIDField()
    hour = models.DateTimeField()
    n_requests = models.BigIntegerField(default=0)
    n_failed = models.BigIntegerField(default=0)
    n_canceled = models.BigIntegerField(default=0)
    n_rule = models.BigIntegerField(default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    drafted_tokens = models.BigIntegerField(default=0)
    accepted_tokens = models.BigIntegerField(default=0)
    amount_microusd = models.BigIntegerField(default=0)
    first_token = models.JSONField(default=list)
    total = models.JSONField(default=list)
    ran = models.JSONField(default=list)
    n_shadow = models.BigIntegerField(default=0)
    shadow_agreement_ppm = models.BigIntegerField(default=0)
    shadow_microusd = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "deployment_id", "artifact_id", "hour"], name="deployment_hour_once"
            )
        ]


class ShadowAnswer(TenantOwned):
    """A live answer that waits to be compared with the teacher's: the text and the answer, sealed. The comparison
    deletes the row; what nobody compared within an hour is swept."""

    deployment_id = models.UUIDField()
    artifact_id = models.UUIDField()
    sealed = SealedField(purpose=SHADOW)
    is_asked = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "created_at"], name="shadow_by_time"),
            models.Index(fields=["created_at"], name="shadow_ttl"),
        ]


class PackReport(TenantOwned):
    """The counts of one server of one artifact's recipe pack since it opened its `log`: totals, so that a newer telling
    replaces the older. Recipe ids and shapes of text, no text; `sealed` holds answers as token ids, and only where the
    compile's spec has `learn_text`. Gone thirty days after the last telling."""

    artifact_id = models.UUIDField()
    artifact_sha256 = models.CharField(max_length=64)
    pack_sha256 = models.CharField(max_length=64)
    log = models.CharField(max_length=32)
    n_answers = models.BigIntegerField()
    n_tokens = models.BigIntegerField()
    tried = models.JSONField()
    missed = models.JSONField()
    sealed = SealedField(null=True, purpose=PACK_REPORT)
    created_at = models.DateTimeField(default=timezone.now)
    told_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id", "log"], name="pack_report_once")]
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "artifact_sha256", "told_at"], name="pack_report_by_artifact"),
            models.Index(fields=["told_at"], name="pack_report_ttl"),
        ]


class Server(models.Model):
    """A serving runner, as it last said of itself; no tenant's. Out of rotation when `lease_until` has passed."""

    id = models.UUIDField(primary_key=True, default=new_uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    url = models.CharField(max_length=300)
    bases = models.JSONField(default=list)
    engine = models.JSONField(default=dict)
    adapters = models.JSONField(default=list)
    max_running = models.IntegerField(default=1)
    n_running = models.IntegerField(default=0)
    n_waiting = models.IntegerField(default=0)
    is_draining = models.BooleanField(default=False)
    lease_until = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now)
