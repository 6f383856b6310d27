"""A tenant, the people in it and those invited, its API keys, its audit log, and the answers kept for its idempotency
keys.

`RetentionDue` and `Erasure` hold ids, times and counts, no tenant's content: upkeep reads them for all tenants, and an
erasure outlives its tenant.
"""

from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from backend.domain.roles import Role
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import TenantOwned
from backend.tenants.sealing import SealedField

KEPT_ANSWER = b"idempotency"  # what a kept answer is bound to, beside its tenant


class Tenant(models.Model):
    """The owner of everything else. A row is visible to itself alone (row-level security on `id`)."""

    id = models.UUIDField(primary_key=True, default=new_uuid7, editable=False)
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(default=timezone.now, editable=False)


class Member(TenantOwned):
    """A person in a tenant. The user's row is shared: one person may be a member of several tenants."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    role = models.CharField(max_length=16, choices=[(r.value, r.value) for r in Role], default=Role.OWNER)
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
    tags = models.JSONField(default=dict, db_default={})  # cost tags, of what is used with it from now on

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant_id", "created_at", "id"], name="api_key_by_time")]


class IdempotencyKey(TenantOwned):
    """The answer that was given for an `Idempotency-Key`, in the transaction of the effect: both are there or neither
    is."""

    key = models.CharField(max_length=255)
    request_hash = models.CharField(max_length=64)
    status = models.SmallIntegerField()
    headers = models.JSONField()
    body = SealedField(purpose=KEPT_ANSWER)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id", "key"], name="idempotency_key_once")]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "created_at"], name="idempotency_key_by_time")]


class AuditEntry(TenantOwned):
    """One line of the audit log. Append-only in the database; `sha256` covers the line and `prev_sha256`, so that no
    line can be changed, dropped or put in between without every later digest changing."""

    seq = models.BigIntegerField()
    created_at = models.DateTimeField()
    actor_kind = models.CharField(max_length=16)
    actor_id = models.CharField(max_length=64, blank=True)
    actor_label = models.CharField(max_length=254, blank=True)
    action = models.CharField(max_length=64)
    target = models.CharField(max_length=100, blank=True)
    data = models.JSONField(default=dict)
    prev_sha256 = models.CharField(max_length=64)
    sha256 = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id", "seq"], name="audit_seq_once")]
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "action", "seq"], name="audit_by_action"),
            models.Index(fields=["tenant_id", "actor_id", "seq"], name="audit_by_actor"),
            models.Index(fields=["tenant_id", "created_at", "id"], name="audit_by_time"),
        ]


class AuditHead(TenantOwned):
    """The end of a tenant's audit log. Its row lock puts the lines in order."""

    seq = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id"], name="audit_head_once")]


class Invitation(TenantOwned):
    """An e-mail that makes whoever owns its address a member. The token is in the e-mail alone; here is its SHA-256."""

    email = models.CharField(max_length=254)
    role = models.CharField(max_length=16, choices=[(r.value, r.value) for r in Role])
    token_hash = models.CharField(max_length=64, unique=True)
    invited_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "email"],
                condition=models.Q(accepted_at=None, revoked_at=None),
                name="invitation_open_once",
            )
        ]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "created_at", "id"], name="invitation_by_time")]


class TeamSettings(TenantOwned):
    """The settings that a team decided for itself. Days are null where nothing is forgotten by age."""

    captures_days = models.IntegerField(null=True)
    candidates_days = models.IntegerField(null=True)
    is_mfa_required = models.BooleanField(default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id"], name="team_settings_once"),
            models.CheckConstraint(
                condition=models.Q(captures_days=None) | models.Q(captures_days__gte=1), name="captures_days_positive"
            ),
            models.CheckConstraint(
                condition=models.Q(candidates_days=None) | models.Q(candidates_days__gte=1),
                name="candidates_days_positive",
            ),
        ]


class RetentionDue(models.Model):
    """The time at which upkeep next forgets what a tenant wants forgotten by age. Shared: an id and a time."""

    tenant_id = models.UUIDField(primary_key=True)
    due_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["due_at"], name="retention_due")]


class Erasure(models.Model):
    """The deletion of a tenant: asked for, done, swept once more for what was under way, and the signed receipt of it.
    Shared, because it outlives the tenant: ids, times, counts and digests."""

    id = models.UUIDField(primary_key=True, default=new_uuid7, editable=False)
    tenant_id = models.UUIDField(unique=True)
    user_id = models.IntegerField()
    requested_at = models.DateTimeField(default=timezone.now)
    done_at = models.DateTimeField(null=True)
    swept_at = models.DateTimeField(null=True)
    receipt = models.JSONField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["requested_at"], condition=models.Q(swept_at=None), name="erasure_unswept")
        ]
