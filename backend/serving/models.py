"""What was tried in the playground: one text, what the students said, and what their teacher said of it."""

from enum import StrEnum
from typing import ClassVar

from django.db import models
from django.utils import timezone

from backend.tenants.scope import TenantOwned


class AnswerState(StrEnum):
    """Of the teacher's side; the students' is there from the start."""

    NOT_ASKED = "not_asked"
    QUEUED = "queued"
    ASKED = "asked"
    ANSWERED = "answered"
    FAILED = "failed"


class PlaygroundAnswer(TenantOwned):
    """One try. `students` are the answers of artifacts, `votes` how often the teacher said each label; both are hostile
    text. A day later the row is gone: what people type is theirs."""

    artifact_id = models.UUIDField()
    compile_id = models.UUIDField()
    text = models.TextField()
    students = models.JSONField(default=list)
    state = models.CharField(max_length=12, choices=[(s.value, s.value) for s in AnswerState])
    model = models.CharField(max_length=200, blank=True)
    label = models.CharField(max_length=200, blank=True)
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
