"""Answers about a compile and what hangs on it: its steps, slices, candidates and events."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from rest_framework import serializers as s

from backend.compiles.draft_savings import DraftSavings, savings_of_compile
from backend.compiles.draft_shapes import DraftSavingsShape
from backend.compiles.models import Candidate, Compile, CompileEvent, Slice, StepRun
from backend.compiles.reactions import split_from, split_into
from backend.domain.drafts.offer_plan import saving_to_json
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import STEPS, TERMINAL, CompileStatus, StepName, StepStatus
from backend.domain.planning.ablations import Arm
from backend.rest.shapes import Constant, PublicId, Shape, TextOrNull, Time
from backend.rest.times import rfc3339

CARD_HELP = (
    "The quality card: student, teacher, heads on the frozen base and a constant answer side by side, each with its "
    "accuracy and interval, time and price; after how many answers the compile has paid for itself. Null before the "
    "gate."
)


def without_card(evaluation: dict[str, Any]) -> dict[str, Any]:
    """The evaluation as answers and artifacts have it: the quality card that is stored with it stands beside it."""
    return {name: value for name, value in evaluation.items() if name != "card"}


class QueueShape(s.Serializer[Any]):
    place = s.IntegerField(help_text="From 1: so many of the jobs that wait for a runner are before it, and itself.")
    of = s.IntegerField(help_text="Jobs that wait for the same runners.")
    expected_start_at = s.DateTimeField(
        allow_null=True,
        help_text="An estimate, renewed while it waits and never in the past; null where nothing is known.",
    )


def queue_of(step: StepRun) -> dict[str, Any] | None:
    """The place of the step's job, while it waits for a runner. A start that was expected earlier is expected now."""
    if step.status != StepStatus.RUNNING or not step.queue:
        return None
    expected, now = step.queue["expected_start_at"], timezone.now()
    is_late = expected is not None and datetime.fromisoformat(expected) < now
    return {**step.queue, "expected_start_at": rfc3339(now) if is_late else expected}


def with_queue(rows: QuerySet[Compile], tenant_id: UUID) -> QuerySet[Compile]:
    """The compiles of a list, each with the step that may wait: one query for all."""
    running = StepRun.objects.of_tenant(tenant_id).filter(status=StepStatus.RUNNING)
    return rows.prefetch_related(Prefetch("steps", queryset=running, to_attr="running_steps"))


class FailureShape(Shape[Compile]):
    code = s.CharField(source="failure_code")
    message = s.CharField(source="failure_message")
    step = TextOrNull(source="failed_step")


class AblationPartShape(Shape[Compile]):
    of = PublicId(
        Prefix.COMPILE,
        source="ablation_of",
        help_text="The compile whose candidates, scores and labels this one took over.",
    )
    arm = s.ChoiceField([arm.value for arm in Arm])


class CompileSummary(Shape[Compile]):  # as lists have it
    id = PublicId(Prefix.COMPILE)
    object = Constant("compile")
    name = s.CharField()
    family = s.CharField()
    status = s.ChoiceField([status.value for status in CompileStatus])
    spec_sha256 = s.CharField()
    estimate = s.JSONField(help_text="Low, expected and high per step, micro-USD, with the assumptions.")
    budget_microusd = s.IntegerField()
    reserved_microusd = s.IntegerField(help_text="Set aside for teacher calls in flight.")
    spent_microusd = s.IntegerField()
    waste_microusd = s.IntegerField(help_text="Carried by kolm: calls repeated after a crash, faults of ours.")
    currency = Constant("usd")
    k_score_ppm = s.IntegerField(allow_null=True, help_text="K-score in parts per million.")
    evaluation = s.DictField(
        allow_null=True,
        help_text="Held-out n, accuracy with interval, table per class or per field, baselines, alternatives with the "
        "interval of the difference, latency, leakage; what rules answered, what was measured and chosen to draft; "
        "`trials`, the students that competed with their K-scores, and `chosen`, the number of the one that was kept.",
    )
    gate = s.DictField(allow_null=True, help_text="The decision, floor by floor, and what to try next.")
    artifact = PublicId(Prefix.ARTIFACT, source="artifact_id", allow_null=True)
    ablation = AblationPartShape(allow_null=True)
    failure = FailureShape(allow_null=True)
    queue = QueueShape(
        allow_null=True, help_text="While it waits for a runner: the place of its job among all that wait for one."
    )
    sequence = s.IntegerField(source="event_seq", help_text="Number of the newest event.")
    created_at = Time()
    started_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)
    last_progress_at = Time(allow_null=True)

    def get_evaluation(self, row: Compile) -> dict[str, Any] | None:
        return None if row.evaluation is None else without_card(row.evaluation)

    def get_queue(self, row: Compile) -> dict[str, Any] | None:
        if row.status in TERMINAL:
            return None
        steps: Iterable[StepRun] | None = getattr(row, "running_steps", None)
        if steps is None:
            steps = StepRun.objects.of_tenant(row.tenant_id).filter(compile=row, status=StepStatus.RUNNING)
        return next((queue for queue in map(queue_of, steps) if queue is not None), None)

    def get_ablation(self, row: Compile) -> Compile | None:
        return None if row.ablation_of is None else row

    def get_failure(self, row: Compile) -> Compile | None:
        return row if row.failure_code else None


class CompileShape(CompileSummary):
    spec = s.JSONField(required=False)
    preflight = s.DictField(
        allow_null=True, help_text="Whether the preflight passed, and its lines; null before the compile has begun."
    )
    card = s.DictField(allow_null=True, help_text=CARD_HELP)
    drafts = DraftSavingsShape(
        allow_null=True,
        required=False,
        help_text="What drafts of earlier compiles saved this one; null where no slice has looked for any.",
    )

    def get_drafts(self, row: Compile) -> DraftSavings | None:
        return savings_of_compile(row.tenant_id, row.id)

    def get_card(self, row: Compile) -> dict[str, Any] | None:
        return (row.evaluation or {}).get("card")


class CompileNotice(CompileSummary):  # as webhooks tell of it: without what its owner wrote and was told at the start
    estimate = None  # type: ignore[assignment]
    queue = None  # type: ignore[assignment]
    url = s.CharField()

    def get_url(self, row: Compile) -> str:
        return f"{settings.KOLM_PUBLIC_URL}/v1/compiles/{encode_id(Prefix.COMPILE, row.id)}"


class ProgressShape(Shape[StepRun]):
    done = s.IntegerField()
    total = s.IntegerField()
    message = s.CharField()


class StepShape(Shape[StepRun]):
    id = PublicId(Prefix.STEP)
    object = Constant("step")
    name = s.ChoiceField([name.value for name in StepName])
    position = s.IntegerField()
    status = s.ChoiceField([status.value for status in StepStatus])
    attempts = s.IntegerField()
    progress = ProgressShape(source="*")
    queue = QueueShape(allow_null=True, help_text="While the step waits for a runner: its place among all that do.")
    estimate = s.DictField(allow_null=True)
    spent_microusd = s.IntegerField()
    waste_microusd = s.IntegerField()
    output = s.DictField(allow_null=True)
    started_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)

    def get_position(self, row: StepRun) -> int:
        return STEPS.index(StepName(row.name))

    def get_queue(self, row: StepRun) -> dict[str, Any] | None:
        return queue_of(row)

    def get_estimate(self, row: StepRun) -> dict[str, Any] | None:
        return row.estimate or None

    def get_output(self, row: StepRun) -> dict[str, Any] | None:
        return row.output or None


class SliceShape(Shape[Slice]):
    id = PublicId(Prefix.SLICE)
    object = Constant("slice")
    name = s.CharField()
    share_ppm = s.IntegerField()
    hint = s.CharField()
    label = TextOrNull()
    n_candidates = s.IntegerField()
    n_generated = s.IntegerField()
    n_from_drafts = s.IntegerField(help_text="Candidates that are drafts of earlier compiles; the teacher wrote fewer.")
    n_rejected = s.IntegerField()
    n_duplicates = s.IntegerField()
    k_requested = s.IntegerField()
    k_actual = s.IntegerField(allow_null=True, help_text="0 for a slice that was split: its halves pick.")
    signal = TextOrNull()
    split_from = s.CharField(allow_null=True, help_text="The slice that this one is a half of.")
    split_into = s.ListField(child=s.CharField(), help_text="The two slices that this one was made into.")
    reactions = s.JSONField(
        help_text="What the pipeline did by itself, in order: rounds, splits, what was passed over."
    )
    drafts = s.DictField(
        allow_null=True,
        help_text="What was offered from the draft cache, what of it was accepted, what that cost and saved.",
    )
    selection = s.DictField(
        allow_null=True,
        help_text="The selection's report: what was asked, what the pool allowed, the picks, the cohesion log as text.",
    )

    def get_split_from(self, row: Slice) -> str | None:
        return split_from(row)

    def get_split_into(self, row: Slice) -> list[str]:
        return split_into(row)

    def get_drafts(self, row: Slice) -> dict[str, Any] | None:
        """Counts and money; None of a slice that looked for no drafts (captures, halves, a cache that is off)."""
        plan = row.offer_plan
        if plan is None:
            return None
        return {
            "arm": plan.arm.value,
            "strategy": None if plan.strategy is None else plan.strategy.value,
            "n_sources": plan.n_sources,
            "nearest_distance": plan.nearest_distance,
            "break_even": plan.break_even,
            "threshold_distance": plan.threshold_distance,
            "offered": plan.n_shown,
            "accepted": plan.n_accepted,
            "entered": row.n_from_drafts,
            "saving": None if plan.saving is None else saving_to_json(plan.saving),
        }

    def get_selection(self, row: Slice) -> dict[str, Any] | None:
        return {name: value for name, value in (row.selection or {}).items() if name != "cluster_of"} or None


class CandidateShape(Shape[Candidate]):  # of a row that is annotated with `slice_name`
    id = PublicId(Prefix.CANDIDATE)
    object = Constant("candidate")
    slice = s.CharField(source="slice_name")
    text = s.CharField()
    origin = s.CharField(help_text="fresh, capture, or draft.")
    certificate = TextOrNull(help_text="Of a draft: exact, bounded, typical, judged or gated; how it was accepted.")
    state = s.CharField()
    reasons = s.ListField(child=s.CharField())
    score = s.FloatField(allow_null=True)
    signal = TextOrNull(help_text="What the score is from: reward, verifier, logprob or none.")
    reward = s.FloatField(allow_null=True, help_text="The number that the reward's model gave, on its own scale.")
    logprob = s.FloatField(allow_null=True)
    n_tokens = s.IntegerField()
    cluster = s.IntegerField(allow_null=True)
    label = TextOrNull()
    answer = TextOrNull(help_text="Of a json or text task: what the teacher agreed on.")
    votes = s.JSONField(help_text="How often each label, or each of the commonest answers, was given.")
    agreement_ppm = s.IntegerField(allow_null=True, help_text="Of the votes; where these were weighed, the posterior.")
    posterior = s.DictField(
        child=s.IntegerField(), allow_null=True, help_text="Each label's probability by the votes, in millionths."
    )
    bought_in = s.IntegerField(allow_null=True, help_text="The round of labelling that picked it; null: selection.")
    bought_for = TextOrNull(help_text="Why that round did: uncertain, rare or random.")
    cost_microusd = s.IntegerField()
    created_at = Time()

    def get_reward(self, row: Candidate) -> float | None:
        return (row.reward or {}).get("raw")


class EventShape(Shape[CompileEvent]):
    object = Constant("event")
    type = s.CharField()
    seq = s.IntegerField(help_text="1, 2, 3 ... within the compile, without gaps.")
    data = s.DictField()
    created_at = Time()
