"""The draft cache's rows: candidates that a selection did not keep. This stretch of the street stores them; offering
them comes with the cache."""

from django.db import models
from pgvector.django import HalfVectorField

from backend.tenants.scope import TenantOwned


class Draft(TenantOwned):
    """A rejected candidate with what a later look-up and verification need. `teacher` is provider/model@revision and
    the sampling policy: another teacher or policy is another distribution, and never sees these rows. `token_logprobs`
    are the teacher's processed log-probs, float16, one a token."""

    family = models.CharField(max_length=100)
    teacher = models.CharField(max_length=300)
    embedder = models.CharField(max_length=200)
    compile_id = models.UUIDField()
    candidate_id = models.UUIDField()
    slice_name = models.CharField(max_length=100)
    slice_embedding = HalfVectorField()
    text = models.TextField()
    text_key = models.CharField(max_length=64)
    score = models.FloatField(null=True)
    signal = models.CharField(max_length=16)
    logprob = models.FloatField(null=True)
    token_logprobs = models.BinaryField(null=True)
    n_tokens = models.IntegerField()
    cost_microusd = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "candidate_id"], name="draft_once")]
        indexes = [models.Index(fields=["tenant_id", "family", "teacher", "embedder"], name="draft_scope")]
