"""A compile and what it leaves behind. Postgres is the truth: every process may die at any moment, and these rows say
where to go on.

Two tables carry no tenant's content and no row-level security, because processes that serve all tenants read them:
`CompileLease` (ids and times: who works on a compile, and when it is due) and `Outbox` (task names and ids to be sent
as wake-ups).
"""

from django.db import models

from backend.compiles.states import (
    BATCH_MOVES,
    CALL_MOVES,
    CANDIDATE_MOVES,
    BatchState,
    CallState,
    CandidateState,
    TeacherCheckState,
    check_move,
)
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.lifecycle import CompileStatus, StepStatus
from backend.domain.planning.ablations import Arm
from backend.tenants.isolation import TenantOwned
from backend.tenants.sealing import SealedField

# What sealed values are bound to, beside their tenant.
TEACHER_KEY = b"teacher_key"
GOLD_SALT = b"gold_salt"


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]  # type: ignore[attr-defined]


class Upload(TenantOwned):
    """A JSONL file the tenant sent: captures, gold examples or a teacher recording. Rows were validated when it came
    in."""

    purpose = models.CharField(max_length=16)
    name = models.CharField(max_length=100, blank=True, default="")  # the newest of a name is what a spec means by it
    sha256 = models.CharField(max_length=64)
    size_bytes = models.IntegerField()
    n_rows = models.IntegerField()
    learning_curve = models.JSONField(null=True)  # `uploads.curves` says what it holds; null before it is asked for
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant_id", "created_at"], name="upload_by_time"),
            models.Index(fields=["tenant_id", "purpose", "name", "created_at"], name="upload_by_name"),
        ]


class GoldSalt(TenantOwned):
    """The secret that decides which side of the gold split an example of this name falls on, sealed; written once, with
    the name's first compile, so that what was held out of one compile is not trained on by the next."""

    name = models.CharField(max_length=100)
    sealed = SealedField(purpose=GOLD_SALT)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "name"], name="gold_salt_once")]


class TeacherKey(TenantOwned):
    """A customer's own key for a teacher, sealed; it is opened in the worker that calls, and never shown again."""

    name = models.CharField(max_length=100)
    sealed = SealedField(purpose=TEACHER_KEY)
    last4 = models.CharField(max_length=4)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "created_at"], name="teacher_key_by_time")]


class EndpointLessons(TenantOwned):
    """The lessons of one endpoint (the digest of its address) for one model: `backend.domain.dialects` reads them."""

    endpoint = models.CharField(max_length=64)
    model = models.CharField(max_length=200)
    lessons = models.JSONField(default=list)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "endpoint", "model"], name="endpoint_lessons_once")]


class TeacherCheck(TenantOwned):
    """The last answer to a preflight's one call, kept for some minutes for what asks the same teacher in the same way
    (`digest`). While it is `queued` a worker is to ask; `spec` is there until it has, and `lines` from then on."""

    digest = models.CharField(max_length=64)
    spec = models.JSONField(null=True)
    status = models.CharField(max_length=12, choices=_choices(TeacherCheckState))
    lines = models.JSONField(default=list)
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "digest"], name="teacher_check_once")]


class Compile(TenantOwned):
    """One spec on its way to an artifact. `event_seq` and `version` move under the row's lock. An ablation names the
    compile whose candidates it takes, and its arm. `provider_microusd` is what the provider of the customer's own
    teacher key will bill, by estimate: it counts against the budget and is on no bill of ours. `preflight` is the list
    that the compile began with, null before that."""

    name = models.CharField(max_length=100)
    family = models.CharField(max_length=100)
    spec = models.JSONField()
    spec_sha256 = models.CharField(max_length=64)
    status = models.CharField(max_length=16, choices=_choices(CompileStatus), default=CompileStatus.QUEUED)
    api_key_id = models.UUIDField(null=True)
    estimate = models.JSONField()
    budget_microusd = models.BigIntegerField()
    reserved_microusd = models.BigIntegerField(default=0)
    spent_microusd = models.BigIntegerField(default=0)
    waste_microusd = models.BigIntegerField(default=0)
    provider_microusd = models.BigIntegerField(default=0)
    k_score_ppm = models.IntegerField(null=True)
    evaluation = models.JSONField(null=True)
    gate = models.JSONField(null=True)
    artifact_id = models.UUIDField(null=True)
    preflight = models.JSONField(null=True)
    ablation_of = models.UUIDField(null=True)
    arm = models.CharField(max_length=16, choices=_choices(Arm), null=True)
    failure_code = models.CharField(max_length=64, blank=True)
    failure_message = models.TextField(blank=True)
    failed_step = models.CharField(max_length=32, blank=True)
    event_seq = models.IntegerField(default=0)
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    last_progress_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant_id", "created_at", "id"], name="compile_by_time"),
            models.Index(
                fields=["tenant_id", "ablation_of"],
                condition=models.Q(ablation_of__isnull=False),
                name="compile_ablations",
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(ablation_of__isnull=True, arm__isnull=True)
                | models.Q(ablation_of__isnull=False, arm__isnull=False),
                name="compile_ablation_has_arm",
            ),
            models.CheckConstraint(condition=models.Q(reserved_microusd__gte=0), name="compile_reserved_not_negative"),
            models.CheckConstraint(
                condition=models.Q(budget_microusd__gte=models.F("reserved_microusd") + models.F("spent_microusd")),
                name="compile_within_budget",
            ),
        ]


class CompileLease(models.Model):
    """The right to write to a compile. An effect commits only together with a check of `fence`; a process that lost its
    lease writes nothing. `away_since`: since when the compile waits for a store that is away."""

    compile_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    fence = models.BigIntegerField(default=0)
    owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    hinted_at = models.DateTimeField(null=True)
    attempts = models.IntegerField(default=0)
    away_since = models.DateTimeField(null=True)
    cancel_requested = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["due_at"], name="lease_due")]


class Outbox(models.Model):
    """A message to send, written in the transaction of the change it announces. Ids only."""

    task = models.CharField(max_length=64)
    ids = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["id"], condition=models.Q(sent_at=None), name="outbox_unsent")]


class StepRun(TenantOwned):
    """One step of one compile: its state, what it put out, what it cost. Done steps are never run again.
    `runner_job_id` is the job that is waited for or was read last; `trials` are evaluation's, each with the ids of its
    jobs and what came of it (`workers/training/trials`), and of a distillation in two trainings the first of them;
    `purchases` are labelling's, each with what was bought and
    why, or why nothing more was (`workers/labeling/purchases`). `queue` is the place of the runner's job while it
    waits: place, of, expected_start_at (`runner_jobs.queue_places`)."""

    compile = models.ForeignKey(Compile, on_delete=models.CASCADE, related_name="steps")
    name = models.CharField(max_length=32)
    position = models.IntegerField()
    status = models.CharField(max_length=16, choices=_choices(StepStatus), default=StepStatus.PENDING)
    attempts = models.IntegerField(default=0)
    done = models.IntegerField(default=0)
    total = models.IntegerField(default=0)
    message = models.CharField(max_length=200, blank=True)
    input_sha256 = models.CharField(max_length=64, blank=True)
    output = models.JSONField(default=dict)
    estimate = models.JSONField(default=dict)
    spent_microusd = models.BigIntegerField(default=0)
    waste_microusd = models.BigIntegerField(default=0)
    runner_job_id = models.UUIDField(null=True)
    queue = models.JSONField(null=True)
    trials = models.JSONField(default=list)
    purchases = models.JSONField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "compile", "name"], name="step_once")]


class Slice(TenantOwned):
    """A part of the task that candidates are written for. `selection` is the SelectionReport, `reactions` what the
    pipeline did by itself, `drafts` what was offered from the draft cache and what came of it."""

    compile = models.ForeignKey(Compile, on_delete=models.CASCADE, related_name="slices")
    position = models.IntegerField()
    name = models.CharField(max_length=100)
    share_ppm = models.IntegerField()
    hint = models.TextField(blank=True)
    exemplars = models.JSONField(default=list)
    label = models.CharField(max_length=200, blank=True)
    is_captured = models.BooleanField(default=False)
    n_candidates = models.IntegerField()
    k_requested = models.IntegerField()
    k_actual = models.IntegerField(null=True)
    round = models.IntegerField(default=0)
    temperature_ppm = models.IntegerField(default=1_000_000)
    is_synthesized = models.BooleanField(default=False)
    n_generated = models.IntegerField(default=0)
    n_from_drafts = models.IntegerField(default=0)
    n_rejected = models.IntegerField(default=0)
    n_duplicates = models.IntegerField(default=0)
    signal = models.CharField(max_length=16, blank=True)
    selection = models.JSONField(null=True)
    reactions = models.JSONField(default=list)
    drafts = models.JSONField(null=True)  # read and written as `offer_plan`
    embedding = models.BinaryField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "compile", "position"], name="slice_once")]

    @property
    def offer_plan(self) -> OfferPlan | None:
        """The plan of the drafts that are offered for this slice; None before it has looked for any."""
        return None if self.drafts is None else OfferPlan.from_json(self.drafts)

    @offer_plan.setter
    def offer_plan(self, plan: OfferPlan) -> None:
        self.drafts = plan.to_json()


class Candidate(TenantOwned):
    """One text for one slice, from teacher, captures or draft. `state` is moved along `states.CANDIDATE_MOVES`. What
    the teacher agreed on is its `label`, or of a json or text task its `answer`. `reward` is null before a model was
    asked for one, then `{"asked": n}` with the raw number as `raw` where it gave one. A pick wants `n_wanted` answers
    (0: as many as the spec asks of every pick at first); `known_answers` are those that an earlier compile had. What a
    round of labelling bought it `bought_in`, `bought_for` a reason of `domain.labeling.rounds.Why`. `posterior` is
    `{label: ppm}` where the votes of a label task were weighed, `label_logprobs` the teacher's own log-probs of the
    labels where its answers tell them, the mean over these."""

    compile = models.ForeignKey(Compile, on_delete=models.CASCADE, related_name="candidates")
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="candidates")
    text = models.TextField()
    text_key = models.CharField(max_length=64)
    origin = models.CharField(max_length=16)
    round = models.IntegerField(default=0)
    state = models.CharField(max_length=16, default=CandidateState.VALID)
    reasons = models.JSONField(default=list)
    logprob = models.FloatField(null=True)
    token_logprobs = models.BinaryField(null=True)
    tokens = models.JSONField(null=True)
    draft_id = models.UUIDField(null=True)
    certificate = models.CharField(max_length=16, blank=True)
    n_tokens = models.IntegerField(default=0)
    cost_microusd = models.BigIntegerField(default=0)
    score = models.FloatField(null=True)
    signal = models.CharField(max_length=16, blank=True)
    reward = models.JSONField(null=True)
    cluster = models.IntegerField(null=True)
    label = models.CharField(max_length=200, blank=True)
    answer = models.TextField(blank=True)
    votes = models.JSONField(default=dict)
    agreement_ppm = models.IntegerField(null=True)
    known_answers = models.JSONField(null=True)
    n_wanted = models.IntegerField(default=0, db_default=0)
    bought_in = models.IntegerField(null=True)
    bought_for = models.CharField(max_length=16, blank=True, default="", db_default="")
    posterior = models.JSONField(null=True)
    label_logprobs = models.JSONField(null=True)
    embedding = models.BinaryField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "compile", "text_key"], name="candidate_text_once")]
        indexes = [models.Index(fields=["tenant_id", "slice", "state"], name="candidate_by_slice")]

    def move(self, to: CandidateState) -> None:
        """Take the next state, in memory: the caller saves it. Raises IllegalMove."""
        check_move(CANDIDATE_MOVES, CandidateState(self.state), to)
        self.state = to


class TeacherCall(TenantOwned):
    """The journal of outside calls: the row is written before the call is made. `started` under an older fence means
    that a process died with the call in flight: it is booked to waste and made again, once. What a vendor's batch
    answers names its `batch_id`."""

    compile = models.ForeignKey(Compile, on_delete=models.CASCADE, related_name="teacher_calls")
    step = models.CharField(max_length=32)
    key = models.CharField(max_length=120)
    attempt = models.IntegerField(default=1)
    fence = models.BigIntegerField()
    state = models.CharField(max_length=16, default=CallState.STARTED)
    model = models.CharField(max_length=200)
    request_sha256 = models.CharField(max_length=64)
    n = models.IntegerField()
    reserved_microusd = models.BigIntegerField()
    input_tokens = models.IntegerField(default=0)
    output_tokens = models.IntegerField(default=0)
    cached_tokens = models.IntegerField(default=0)
    thought_tokens = models.IntegerField(default=0, db_default=0)
    revision = models.CharField(max_length=200, blank=True)
    price_version = models.CharField(max_length=64, blank=True)
    cost_microusd = models.BigIntegerField(default=0)
    usage_flags = models.JSONField(default=list)
    provider_request_id = models.CharField(max_length=200, blank=True)
    latency_ms = models.IntegerField(default=0)
    choices = models.JSONField(default=list)
    error_code = models.CharField(max_length=64, blank=True)
    batch_id = models.UUIDField(null=True)
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "compile", "key", "attempt"], name="teacher_call_once")
        ]
        indexes = [
            models.Index(
                fields=["tenant_id", "batch_id"], condition=models.Q(batch_id__isnull=False), name="call_by_batch"
            )
        ]

    def move(self, to: CallState) -> None:
        """Take the next state, in memory: the caller saves it. Raises IllegalMove."""
        check_move(CALL_MOVES, CallState(self.state), to)
        self.state = to


class TeacherBatch(TenantOwned):
    """One batch at a vendor: written before the vendor hears of it, so that a process that dies loses none and pays for
    none twice. The vendor's job is found again by its input file, which no other job has. `vendor_status` and the
    counts are what it said last, `reason` why it was refused as a whole; `asked_for_at` and `cancel_asked_at` are when
    it was asked for the job, and to stop it. `lessons` are those by which its requests were made, and at its end those
    of their refusals too."""

    compile_id = models.UUIDField()
    step = models.CharField(max_length=32)
    model = models.CharField(max_length=200)
    state = models.CharField(max_length=16, default=BatchState.PLANNED)
    file_sha256 = models.CharField(max_length=64)
    n_requests = models.IntegerField()
    input_file = models.CharField(max_length=200, blank=True)
    vendor_id = models.CharField(max_length=200, blank=True)
    vendor_status = models.CharField(max_length=32, blank=True)
    n_done = models.IntegerField(default=0)
    n_failed = models.IntegerField(default=0)
    n_answered = models.IntegerField(default=0)
    reason = models.CharField(max_length=64, blank=True)
    lessons = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    asked_for_at = models.DateTimeField(null=True)
    submitted_at = models.DateTimeField(null=True)
    cancel_asked_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "compile_id", "created_at"], name="teacher_batch_by_compile")]

    def move(self, to: BatchState) -> None:
        """Take the next state, in memory: the caller saves it. Raises IllegalMove."""
        check_move(BATCH_MOVES, BatchState(self.state), to)
        self.state = to


class CompileEvent(TenantOwned):
    """The compile's events in order: `seq` counts 1, 2, 3 ... without gaps, given under the compile's row lock."""

    compile = models.ForeignKey(Compile, on_delete=models.CASCADE, related_name="events")
    seq = models.IntegerField()
    type = models.CharField(max_length=64)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "compile", "seq"], name="event_seq_once")]
