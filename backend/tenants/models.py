"""A tenant, the people in it, its API keys, and the answers kept for its idempotency keys."""

from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from backend.rest.new_ids import new_uuid7
from backend.tenants.scope import TenantOwned


class Tenant(models.Model):
    """The owner of everything else. A row is visible to itself alone (row-level security on `id`)."""

    id = models.UUIDField(primary_key=True, default=new_uuid7, editable=False)
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(default=timezone.now, editable=False)


class Member(TenantOwned):
    """A person in a tenant. The user's row is shared: one person may be a member of several tenants."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id", "user"], name="member_once")]


class ApiKey(TenantOwned):
    """A key is stored as its SHA-256: with 178 bits of entropy a slow hash would add nothing but latency."""

    name = models.CharField(max_length=100)
    key_hash = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=12)
    last4 = models.CharField(max_length=4)
    is_live = models.BooleanField()
    scopes = ArrayField(models.CharField(max_length=64))
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant_id", "created_at", "id"], name="api_key_by_time")]


class IdempotencyKey(TenantOwned):
    """The answer that was given for an `Idempotency-Key`, in the transaction of the effect: both are there or neither
    is."""

    key = models.CharField(max_length=255)
    request_hash = models.CharField(max_length=64)
    status = models.SmallIntegerField()
    headers = models.JSONField()
    body = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id", "key"], name="idempotency_key_once")]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "created_at"], name="idempotency_key_by_time")]
