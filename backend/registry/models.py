"""The registry of recipes: what each tenant put in, and the epochs that came of it.

`Epoch` holds no tenant's content: what it has was counted of k parties at least before anybody could read it
(docs/registry.md), and all tenants may download it.
"""

from django.db import models
from django.utils import timezone

from backend.domain.recipes.registry.structural import MAX_RUN_CHARS
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import TenantOwned

MAX_SHAPE_CHARS = 120


class Contribution(TenantOwned):
    """One entry of one tenant, structure alone. However often a tenant comes to it, it is one row."""

    shape_version = models.CharField(max_length=32)
    shape = models.CharField(max_length=MAX_SHAPE_CHARS)
    run = models.CharField(max_length=MAX_RUN_CHARS)
    created_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "shape_version", "shape", "run"], name="contribution_once")
        ]


class Withdrawal(TenantOwned):
    """The time at which a tenant took everything back: no compile from before that contributes again."""

    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id"], name="withdrawal_once")]


class Epoch(models.Model):
    """A release of the registry: the file as it is downloaded."""

    id = models.UUIDField(primary_key=True, default=new_uuid7, editable=False)
    number = models.IntegerField(unique=True)
    sha256 = models.CharField(max_length=64)
    merkle_root = models.CharField(max_length=64)
    shape_version = models.CharField(max_length=32)
    k = models.IntegerField()
    n_entries = models.IntegerField()
    size_bytes = models.IntegerField()
    data = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now)
