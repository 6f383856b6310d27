"""The draft cache's rows.

A source is a slice of an earlier compile with one vector; its drafts hang under it. Both, and the verdicts on them, are
hash-partitioned by tenant (the migration has the tables; Django sees plain models). Texts are sealed with the family's
own key and vectors are rotated by it (`vault`), so that a family whose key is gone is gone.
"""

from django.db import models
from pgvector.django import HalfVectorField

from backend.domain.drafts.vocabulary import Arm, Certificate, DraftState, Kinship, Strategy, VerdictKind
from backend.tenants.isolation import TenantOwned
from backend.tenants.sealing import SealedField

ROW_BYTES = 400  # a row with its index entries, without the texts, log-probs and vector in it; measured


def _n_bytes(*parts: models.Expression) -> models.GeneratedField:
    """The bytes that a row takes, kept by Postgres itself, so that no writer can forget it."""
    total: models.Expression = models.Value(ROW_BYTES)
    for part in parts:
        total = total + part
    return models.GeneratedField(expression=total, output_field=models.IntegerField(), db_persist=True)


def _length(column: str) -> models.Func:
    return models.Func(models.F(column), function="octet_length", output_field=models.IntegerField())


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]  # type: ignore[attr-defined]


def family_key_purpose(family: str) -> bytes:
    """Another family's key does not open under this family's name."""
    return b"draft_family_key/" + family.encode()


class FamilyKey(TenantOwned):
    """The data key of one task family, sealed under the installation's key. Deleting it is what deletes the texts."""

    family = models.CharField(max_length=100)
    sealed = SealedField(purpose=lambda row: family_key_purpose(row.family))
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "family"], name="family_key_once")]


class Scope(TenantOwned):
    """The values that must be equal for a draft to be seen at all. `teacher` is provider/model@revision and the
    sampling policy: another teacher or policy is another distribution. `embedder` is name and weights' digest."""

    family = models.CharField(max_length=100)
    teacher = models.CharField(max_length=400)
    embedder = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "family", "teacher", "embedder"], name="scope_once")
        ]


class Source(TenantOwned):
    """A slice that drafts were written for. `prompt_sealed` is JSON: the slice's text (what the vector is of) and the
    messages that the teacher was sent. `slice_mac` and `label_mac` name its slice and label, null where it has none or
    is of a release before. `n_shown` and `n_accepted` count its drafts' verdicts. `missing_ppm` is the
    share of what the teacher wrote that is not here (refused by a check, or a duplicate): how far, at most, a draft
    drawn from here is from one drawn from the teacher, as a total variation."""

    scope = models.ForeignKey(Scope, on_delete=models.CASCADE, related_name="sources", db_constraint=False)
    compile_id = models.UUIDField()
    prompt_mac = models.BinaryField()
    slice_mac = models.BinaryField(null=True)
    label_mac = models.BinaryField(null=True)
    prompt_sealed = models.BinaryField()
    embedding = HalfVectorField()
    price_version = models.CharField(max_length=64, blank=True, default="", db_default="")  # of its drafts' costs
    missing_ppm = models.IntegerField(default=0, db_default=0)
    n_shown = models.IntegerField(default=0)
    n_accepted = models.IntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    # a vector lies in the table and again in the index: 2 bytes a dimension each
    n_bytes = _n_bytes(
        _length("prompt_sealed"),
        models.Func(models.F("embedding"), function="vector_dims", output_field=models.IntegerField()) * 4,
    )

    class Meta:
        indexes = [
            # a look-up reads this index alone, and it lies in one piece per tenant and scope
            models.Index(fields=["tenant_id", "scope"], include=["id", "embedding"], name="source_scope"),
            models.Index(fields=["tenant_id"], include=["n_bytes"], name="source_bytes"),
            models.Index(fields=["expires_at"], name="source_ttl"),
            # the newest of a name or a label are read from their end, however many there are
            models.Index(fields=["tenant_id", "scope", "slice_mac", "id"], name="source_by_slice"),
            models.Index(fields=["tenant_id", "scope", "label_mac", "id"], name="source_by_label"),
        ]


class Draft(TenantOwned):
    """A candidate that passed every deterministic check, for the next similar compile. `is_kept` says that its own
    compile picked it: such a row is there because an exact rule needs an unbiased sample, and is no product draft.
    `token_logprobs` are the teacher's processed log-probs (temperature and truncation applied), float16, one a token.
    A text that began as another draft has that one as `root_id` and depth 1; nothing goes deeper."""

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="drafts", db_constraint=False)
    scope_id = models.UUIDField()
    compile_id = models.UUIDField()
    candidate_id = models.UUIDField()
    text_sealed = models.BinaryField()
    text_mac = models.BinaryField()
    tokens_sealed = models.BinaryField(null=True)
    token_logprobs = models.BinaryField(null=True)
    logprob = models.FloatField(null=True)
    n_tokens = models.IntegerField()
    n_bytes = models.IntegerField()
    score = models.FloatField(null=True)
    signal = models.CharField(max_length=16)
    is_kept = models.BooleanField()
    state = models.CharField(max_length=12, choices=_choices(DraftState), default=DraftState.LIVE)
    n_shown = models.IntegerField(default=0)
    n_accepted = models.IntegerField(default=0)
    root_id = models.UUIDField(null=True)
    depth = models.SmallIntegerField(default=0)
    cost_microusd = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    scope: Scope  # this and the text are there once `reading.Reader` has opened the row
    text: str | None

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "source", "text_mac"], name="draft_text_once"),
            models.UniqueConstraint(fields=["tenant_id", "candidate_id"], name="draft_candidate_once"),
            models.CheckConstraint(condition=models.Q(depth__gte=0, depth__lte=1), name="draft_depth"),
        ]
        indexes = [
            models.Index(fields=["tenant_id", "source", "state"], name="draft_by_source"),
            # with `n_bytes`, so that a tenant's sum is one scan of an index that is there anyway
            models.Index(fields=["tenant_id", "created_at", "id"], include=["n_bytes"], name="draft_by_time"),
            models.Index(fields=["tenant_id", "root_id"], name="draft_by_root", condition=~models.Q(root_id=None)),
            models.Index(fields=["expires_at"], name="draft_ttl"),
        ]


class LabelDraft(TenantOwned):
    """The answers that a teacher gave to one label prompt. Asked again word for word, of the same revision and under
    the same policy, they are as good as new ones; anything else is another prompt and never matches `prompt_mac`."""

    scope = models.ForeignKey(Scope, on_delete=models.CASCADE, related_name="labels", db_constraint=False)
    compile_id = models.UUIDField()
    prompt_mac = models.BinaryField()
    answers_sealed = models.BinaryField()
    n = models.IntegerField()
    n_calls = models.IntegerField(default=0, db_default=0)  # that gave them; 0, of a release before: one an answer
    input_tokens = models.IntegerField()
    output_tokens = models.IntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    n_bytes = _n_bytes(_length("answers_sealed"))

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "scope", "prompt_mac"], name="label_draft_once")]
        indexes = [
            models.Index(fields=["tenant_id"], include=["n_bytes"], name="label_draft_bytes"),
            models.Index(fields=["expires_at"], name="label_draft_ttl"),
        ]


class Offer(TenantOwned):
    """One slice that looked for drafts, and what came of it: `n_pooled` drafts competed without a verdict, `n_shown`
    were verified, `n_avoided` candidates were not written. Append-only. Money in micro-USD; net = avoided -
    verification - embedding - audits - exploration, and may be below zero."""

    compile_id = models.UUIDField()
    slice_position = models.IntegerField()
    scope_id = models.UUIDField(null=True)
    family = models.CharField(max_length=100)
    strategy = models.CharField(max_length=16, choices=_choices(Strategy), blank=True)
    arm = models.CharField(max_length=16, choices=_choices(Arm))
    n_wanted = models.IntegerField()
    n_pooled = models.IntegerField(default=0, db_default=0)
    n_avoided = models.IntegerField(default=0, db_default=0)
    n_sources = models.IntegerField(default=0)
    nearest_distance = models.FloatField(null=True)
    break_even = models.FloatField(null=True)
    n_shown = models.IntegerField(default=0)
    n_accepted = models.IntegerField(default=0)
    n_reused = models.IntegerField(default=0)
    kept_tokens = models.JSONField(default=dict)
    # of an engine that takes drafts as proposals, by its own counters
    engine_written = models.BigIntegerField(default=0, db_default=0)
    engine_proposed = models.BigIntegerField(default=0, db_default=0)
    engine_kept = models.BigIntegerField(default=0, db_default=0)
    fresh_microusd = models.FloatField(null=True)
    avoided_microusd = models.BigIntegerField(default=0)
    verification_microusd = models.BigIntegerField(default=0)
    embedding_microusd = models.BigIntegerField(default=0)
    audit_microusd = models.BigIntegerField(default=0)
    exploration_microusd = models.BigIntegerField(default=0)
    price_version = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "compile_id", "slice_position"], name="offer_once")]
        indexes = [models.Index(fields=["tenant_id", "family", "created_at"], name="offer_by_family")]


class Verdict(TenantOwned):
    """A verdict on one draft. Append-only; the calibration can be computed again from these rows, in the order of their
    ids. `cost_microusd` is the draft's share of what its verification was billed, `gate_score` what the task's own
    verifiers gave it on the new slice, where the spec asks for that."""

    offer_id = models.UUIDField()
    compile_id = models.UUIDField()
    scope_id = models.UUIDField()
    source_id = models.UUIDField()
    draft_id = models.UUIDField()
    strategy = models.CharField(max_length=16, choices=_choices(Strategy))
    kind = models.CharField(max_length=16, choices=_choices(VerdictKind))
    certificate = models.CharField(max_length=16, choices=_choices(Certificate), blank=True)
    distance = models.FloatField()
    kinship = models.CharField(
        max_length=8, choices=_choices(Kinship), default=Kinship.OTHER, db_default=Kinship.OTHER.value
    )
    predicted = models.FloatField()
    propensity = models.FloatField()
    is_accepted = models.BooleanField()
    gate_score = models.FloatField(null=True)
    n_tokens = models.IntegerField()
    n_tokens_kept = models.IntegerField()
    cost_microusd = models.BigIntegerField()
    price_version = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "scope_id", "strategy", "id"], name="verdict_by_scope")]


class Outcome(TenantOwned):
    """The outcome of one slice's candidates at selection, for the comparison of held-back slices with the others.
    Append-only."""

    compile_id = models.UUIDField()
    slice_position = models.IntegerField()
    family = models.CharField(max_length=100)
    arm = models.CharField(max_length=16, choices=_choices(Arm))
    n_candidates = models.IntegerField()
    n_from_drafts = models.IntegerField()
    n_picked = models.IntegerField()
    n_picked_from_drafts = models.IntegerField()
    mean_score = models.FloatField(null=True)
    mean_pairwise = models.FloatField(null=True)
    cost_microusd = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "compile_id", "slice_position"], name="outcome_once")
        ]
        indexes = [models.Index(fields=["tenant_id", "family"], name="outcome_by_family")]


class Calibration(TenantOwned):
    """The acceptance that is known within one scope under one strategy: the posterior over the curves (a few kB), and
    the counts that the bound and the lock-out guard need. Of a spec's own judge all of it is about the one that `judge`
    names, since `begun_at`. `label_votes` are a label task's votes on picks, by slice
    (`domain.drafts.label_votes`)."""

    scope = models.ForeignKey(Scope, on_delete=models.CASCADE, related_name="calibrations", db_constraint=False)
    strategy = models.CharField(max_length=16, choices=_choices(Strategy))
    grid_version = models.SmallIntegerField()
    log_posterior = models.BinaryField()
    n_observations = models.IntegerField(default=0)
    n_lookups = models.IntegerField(default=0)
    n_since_shown = models.IntegerField(default=0)
    spent_microusd = models.BigIntegerField(default=0)
    explored_microusd = models.BigIntegerField(default=0)
    n_negative_controls = models.IntegerField(default=0)
    n_negative_accepted = models.IntegerField(default=0)
    n_positive_controls = models.IntegerField(default=0)
    n_positive_accepted = models.IntegerField(default=0)
    n_audit_negatives = models.IntegerField(default=0, db_default=0)
    n_audit_negatives_accepted = models.IntegerField(default=0, db_default=0)
    n_audit_positives = models.IntegerField(default=0, db_default=0)
    n_audit_positives_accepted = models.IntegerField(default=0, db_default=0)
    n_audited = models.IntegerField(default=0)
    n_audited_refused = models.IntegerField(default=0)
    n_audited_bad = models.IntegerField(default=0)
    label_votes = models.JSONField(default=list, db_default=[])
    max_bad_rate = models.FloatField(null=True)
    suspended_at = models.DateTimeField(null=True)
    judge = models.CharField(max_length=200, blank=True, default="", db_default="")
    begun_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "scope", "strategy"], name="calibration_once")]


class Preview(TenantOwned):
    """A question to the workers: what would be offered for this spec? The web process loads no model, so it cannot
    embed the slices itself."""

    spec = models.JSONField()
    status = models.CharField(max_length=12, default="queued")
    result = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="preview_ttl")]
