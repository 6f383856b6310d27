"""Endpoints, events and their deliveries.

`DeliveryDue` carries no tenant's content and no row-level security: the process that delivers for all tenants reads it
(ids and times: what is to be sent when, and who is sending it). A delivery has a row there while it is pending.
"""

from enum import StrEnum
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

from backend.tenants.isolation import TenantOwned
from backend.tenants.sealing import SealedField

SECRET = b"webhook_secret"  # what a sealed signing secret is bound to, beside its tenant


class EndpointStatus(StrEnum):
    ENABLED = "enabled"
    DISABLED = "disabled"


class DisabledReason(StrEnum):
    REQUESTED = "requested"
    GONE = "gone"
    FAILING = "failing"


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


def _choices(enum: type[StrEnum]) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]


class CurrentTransaction(models.Func):
    """The number of the transaction that inserts."""

    template = "pg_current_xact_id()::text::bigint"
    output_field = models.BigIntegerField()


class WebhookEndpoint(TenantOwned):
    """An endpoint: where to send which events. `failing_since` is the first failure since the last success,
    `clock_since` the first one at least twelve hours later. A deleted endpoint keeps its row for the log, without its
    secrets."""

    url = models.CharField(max_length=2000)
    description = models.CharField(max_length=200, blank=True)
    events = ArrayField(models.CharField(max_length=64))
    signature = models.CharField(max_length=4, choices=[("v1", "v1"), ("v1a", "v1a")], default="v1")
    secret = SealedField(purpose=SECRET)
    old_secret = SealedField(null=True, purpose=SECRET)
    old_secret_until = models.DateTimeField(null=True)
    status = models.CharField(max_length=12, choices=_choices(EndpointStatus), default=EndpointStatus.ENABLED)
    disabled_reason = models.CharField(max_length=12, choices=_choices(DisabledReason), blank=True)
    disabled_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)
    clock_since = models.DateTimeField(null=True)
    last_success_at = models.DateTimeField(null=True)
    replayed_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant_id", "created_at", "id"], name="webhook_endpoint_by_time")]


class WebhookEvent(TenantOwned):
    """One event with the bytes that every attempt sends. `xact` orders the feed: once every transaction below a number
    has ended, nothing can appear below it any more."""

    type = models.CharField(max_length=64)
    body = models.BinaryField()
    xact = models.BigIntegerField(db_default=CurrentTransaction())
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "created_at", "id"], name="webhook_event_by_time"),
            models.Index(fields=["tenant_id", "xact", "id"], name="webhook_event_feed"),
            models.Index(fields=["created_at"], name="webhook_event_ttl"),
        ]


class WebhookDelivery(TenantOwned):
    """An event on its way to an endpoint. `tries` counts the attempts of this round (a replay begins anew), `attempts`
    all of them. A test send has one try."""

    event = models.ForeignKey(WebhookEvent, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="+")
    is_test = models.BooleanField(default=False)
    status = models.CharField(max_length=12, choices=_choices(DeliveryStatus), default=DeliveryStatus.PENDING)
    tries = models.IntegerField(default=0)
    attempts = models.IntegerField(default=0)
    next_at = models.DateTimeField(null=True)
    status_code = models.IntegerField(null=True)
    error = models.CharField(max_length=32, blank=True)
    ended_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "event", "endpoint"], name="webhook_delivery_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "created_at", "id"], name="webhook_delivery_by_time"),
            models.Index(fields=["tenant_id", "endpoint", "status"], name="webhook_delivery_of"),
            models.Index(fields=["created_at"], name="webhook_delivery_ttl"),
        ]


class WebhookAttempt(TenantOwned):
    """One request: what was sent beside the event's body, and what came back. `error` is a class of failure in one
    word, empty for a 2xx."""

    delivery = models.ForeignKey(WebhookDelivery, on_delete=models.CASCADE, related_name="log", db_constraint=False)
    number = models.IntegerField()
    url = models.CharField(max_length=2000)
    request_headers = models.JSONField()
    status_code = models.IntegerField(null=True)
    response_headers = models.JSONField(default=dict)
    response_head = models.TextField(blank=True)
    response_bytes = models.IntegerField(default=0)
    response_is_cut = models.BooleanField(default=False)
    error = models.CharField(max_length=32, blank=True)
    detail = models.CharField(max_length=300, blank=True)
    latency_ms = models.IntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant_id", "delivery", "number"], name="webhook_attempt_of")]


class DeliveryDue(models.Model):
    """The time at which a pending delivery is next sent. While `claim` is set a process is at it, and `due_at` is when
    another may take it over."""

    delivery_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    endpoint_id = models.UUIDField()
    due_at = models.DateTimeField()
    claim = models.UUIDField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["endpoint_id", "due_at"], name="delivery_due"),
            models.Index(fields=["endpoint_id"], condition=models.Q(claim__isnull=False), name="delivery_claimed"),
        ]
