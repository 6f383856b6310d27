"""Published artifacts, the receipts of every step, also of compiles that never published, and the keys that signed
both."""

from django.db import models

from backend.tenants.isolation import TenantOwned


class Artifact(TenantOwned):
    """A published `.kolm`: its bytes lie in the blob store under `sha256`. `version` counts per tenant and name."""

    compile_id = models.UUIDField()
    name = models.CharField(max_length=100)
    version = models.IntegerField()
    sha256 = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()
    manifest = models.JSONField()
    k_score_ppm = models.IntegerField()
    evaluation = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True)
    revoked_reason = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "compile_id"], name="artifact_per_compile"),
            models.UniqueConstraint(fields=["tenant_id", "name", "version"], name="artifact_version_once"),
        ]
        indexes = [models.Index(fields=["tenant_id", "created_at", "id"], name="artifact_by_time")]


class RevokedDigest(models.Model):
    """The digest of a revoked `.kolm`, for the servers, which serve all tenants and drop what they hold of it."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    revoked_at = models.DateTimeField()


class Receipt(TenantOwned):
    """A signed statement about one step, chained to the one before by `prev` inside the payload. Append-only."""

    compile_id = models.UUIDField()
    seq = models.IntegerField()
    step = models.CharField(max_length=32)
    envelope = models.JSONField()
    payload_sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "compile_id", "seq"], name="receipt_seq_once")]


class SigningKey(models.Model):
    """The document of a signing key: its public half and its own dates, whatever file the private half lies in.
    Written by the owner of the tables alone (`manage.py rotate_signing_key`), so that no process that customers reach
    can publish a key. `not_after` is null while nobody has retired it."""

    keyid = models.CharField(max_length=64, primary_key=True)
    public_key = models.BinaryField()
    not_before = models.DateTimeField()
    not_after = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
