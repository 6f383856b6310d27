"""What requests may hold and what answers look like: for validation on the way in, for OpenAPI on the way out."""

from rest_framework import serializers as s

from backend.compiles.uploads import UploadPurpose
from backend.domain.lifecycle import CompileStatus, StepName, StepStatus
from backend.domain.planning.ablations import Arm
from backend.rest.strict import StrictSerializer


class ResumeRequest(StrictSerializer):
    budget_microusd = s.IntegerField(
        required=False, min_value=1, max_value=10**12, help_text="A new, larger budget in micro-USD."
    )


class AblationRequest(StrictSerializer):
    arm = s.ChoiceField(
        [arm.value for arm in Arm],
        help_text="all: label and train on every valid candidate; random: as many as were selected, drawn by the seed.",
    )
    budget_microusd = s.IntegerField(
        required=False,
        min_value=1,
        max_value=10**12,
        help_text="What the arm may cost, micro-USD; left out, the budget of the compile that is ablated.",
    )


class TeacherKeyRequest(StrictSerializer):
    name = s.CharField(max_length=100, help_text="What you call this key.")
    secret = s.CharField(
        max_length=500,
        trim_whitespace=True,
        write_only=True,
        help_text="The key itself; it is sealed and never shown again.",
    )


class FailureShape(s.Serializer[object]):
    code = s.CharField()
    message = s.CharField()
    step = s.CharField(allow_null=True)


class AblationPartShape(s.Serializer[object]):
    of = s.CharField(help_text="The compile whose candidates, scores and labels this one took over.")
    arm = s.ChoiceField([arm.value for arm in Arm])


class CompileShape(s.Serializer[object]):
    id = s.CharField()
    object = s.ChoiceField(["compile"])
    name = s.CharField()
    family = s.CharField()
    status = s.ChoiceField([status.value for status in CompileStatus])
    spec_sha256 = s.CharField()
    estimate = s.JSONField(help_text="Low, expected and high per step, micro-USD, with the assumptions.")
    budget_microusd = s.IntegerField()
    reserved_microusd = s.IntegerField(help_text="Set aside for teacher calls in flight.")
    spent_microusd = s.IntegerField()
    waste_microusd = s.IntegerField(help_text="Carried by kolm: calls repeated after a crash, faults of ours.")
    currency = s.ChoiceField(["usd"])
    k_score_ppm = s.IntegerField(allow_null=True, help_text="K-score in parts per million.")
    evaluation = s.DictField(
        allow_null=True,
        help_text="Held-out n, accuracy with interval, table per class or per field, baselines, latency, leakage; "
        "what rules answered, what was measured and chosen to draft.",
    )
    gate = s.DictField(allow_null=True, help_text="The decision, floor by floor, and what to try next.")
    artifact = s.CharField(allow_null=True)
    ablation = AblationPartShape(allow_null=True)
    failure = FailureShape(allow_null=True)
    sequence = s.IntegerField(help_text="Number of the newest event.")
    created_at = s.DateTimeField()
    started_at = s.DateTimeField(allow_null=True)
    ended_at = s.DateTimeField(allow_null=True)
    last_progress_at = s.DateTimeField(allow_null=True)
    spec = s.JSONField(required=False)


class OutcomeShape(s.Serializer[object]):
    correct = s.IntegerField()
    n = s.IntegerField(help_text="Held-out rows.")
    n_labels = s.IntegerField(help_text="Inputs that were labeled.")
    n_labels_reused = s.IntegerField(help_text="Of them, those whose labels were taken over from the ablated compile.")
    label_cost_microusd = s.IntegerField(help_text="What all its labels cost, also those taken over.")
    n_pairs = s.IntegerField(help_text="Pairs that trained, gold included.")
    k_score_ppm = s.IntegerField(allow_null=True)
    accuracy_ppm = s.IntegerField()
    accuracy_low_ppm = s.IntegerField()
    accuracy_high_ppm = s.IntegerField()


class PairedShape(s.Serializer[object]):
    n = s.IntegerField()
    both = s.IntegerField(help_text="Rows that both got right.")
    first = s.IntegerField(help_text="Rows that only the selected side got right.")
    second = s.IntegerField(help_text="Rows that only the arm got right.")
    neither = s.IntegerField()
    difference_ppm = s.IntegerField(help_text="Accuracy of the selected side less that of the arm.")
    low_ppm = s.IntegerField()
    high_ppm = s.IntegerField()
    confidence_ppm = s.IntegerField()
    p_value_ppm = s.IntegerField(help_text="Exact McNemar, two-sided.")
    is_clear = s.BooleanField(help_text="Whether the interval leaves 0 out.")


class ComparisonShape(s.Serializer[object]):
    selected = OutcomeShape()
    arm = OutcomeShape()
    paired = PairedShape()
    k_score_difference_ppm = s.IntegerField(allow_null=True)
    label_cost_difference_microusd = s.IntegerField()


class AblationShape(s.Serializer[object]):
    object = s.ChoiceField(["ablation"])
    id = s.CharField(help_text="The arm's own compile.")
    name = s.CharField()
    of = s.CharField()
    arm = s.ChoiceField([arm.value for arm in Arm])
    status = s.ChoiceField([status.value for status in CompileStatus])
    failure = FailureShape(allow_null=True)
    spent_microusd = s.IntegerField()
    k_score_ppm = s.IntegerField(allow_null=True)
    comparison = ComparisonShape(allow_null=True, help_text="Once both sides are evaluated.")
    created_at = s.DateTimeField()
    ended_at = s.DateTimeField(allow_null=True)


class ProgressShape(s.Serializer[object]):
    done = s.IntegerField()
    total = s.IntegerField()
    message = s.CharField()


class StepShape(s.Serializer[object]):
    id = s.CharField()
    object = s.ChoiceField(["step"])
    name = s.ChoiceField([name.value for name in StepName])
    position = s.IntegerField()
    status = s.ChoiceField([status.value for status in StepStatus])
    attempts = s.IntegerField()
    progress = ProgressShape()
    estimate = s.DictField(allow_null=True)
    spent_microusd = s.IntegerField()
    waste_microusd = s.IntegerField()
    output = s.DictField(allow_null=True)
    started_at = s.DateTimeField(allow_null=True)
    ended_at = s.DateTimeField(allow_null=True)


class SliceShape(s.Serializer[object]):
    id = s.CharField()
    object = s.ChoiceField(["slice"])
    name = s.CharField()
    share_ppm = s.IntegerField()
    hint = s.CharField()
    label = s.CharField(allow_null=True)
    n_candidates = s.IntegerField()
    n_generated = s.IntegerField()
    n_from_drafts = s.IntegerField(help_text="Candidates that are drafts of earlier compiles; the teacher wrote fewer.")
    n_rejected = s.IntegerField()
    n_duplicates = s.IntegerField()
    k_requested = s.IntegerField()
    k_actual = s.IntegerField(allow_null=True, help_text="0 for a slice that was split: its halves pick.")
    signal = s.CharField(allow_null=True)
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


class CandidateShape(s.Serializer[object]):
    id = s.CharField()
    object = s.ChoiceField(["candidate"])
    slice = s.CharField()
    text = s.CharField()
    origin = s.CharField(help_text="fresh, capture, or draft.")
    certificate = s.CharField(
        allow_null=True, help_text="Of a draft: exact, bounded, typical, judged or gated; how it was accepted."
    )
    state = s.CharField()
    reasons = s.ListField(child=s.CharField())
    score = s.FloatField(allow_null=True)
    signal = s.CharField(allow_null=True)
    logprob = s.FloatField(allow_null=True)
    n_tokens = s.IntegerField()
    cluster = s.IntegerField(allow_null=True)
    label = s.CharField(allow_null=True)
    answer = s.CharField(allow_null=True, help_text="Of a json or text task: what the teacher agreed on.")
    votes = s.JSONField(help_text="How often each label, or each of the commonest answers, was given.")
    agreement_ppm = s.IntegerField(allow_null=True)
    cost_microusd = s.IntegerField()
    created_at = s.DateTimeField()


class EventShape(s.Serializer[object]):
    object = s.ChoiceField(["event"])
    type = s.CharField()
    seq = s.IntegerField()
    data = s.JSONField()
    created_at = s.DateTimeField()


class UploadShape(s.Serializer[object]):
    id = s.CharField()
    object = s.ChoiceField(["upload"])
    purpose = s.ChoiceField([purpose.value for purpose in UploadPurpose])
    sha256 = s.CharField()
    size_bytes = s.IntegerField()
    n_rows = s.IntegerField()
    created_at = s.DateTimeField()


class TeacherKeyShape(s.Serializer[object]):
    id = s.CharField()
    object = s.ChoiceField(["teacher_key"])
    name = s.CharField()
    last4 = s.CharField()
    created_at = s.DateTimeField()


class ValidationShape(s.Serializer[object]):
    object = s.ChoiceField(["spec_validation"])
    valid = s.BooleanField()
    spec = s.JSONField(help_text="The spec with every default filled in.")
    estimate = s.JSONField()


class EstimateQuery(StrictSerializer):
    drafts = s.BooleanField(default=False, help_text="Whether to ask what the draft cache would save.")


class DraftSavingShape(s.Serializer[object]):
    """Nulls where no worker could say, and then `reason` says why."""

    n_slices = s.IntegerField(allow_null=True)
    n_slices_offered = s.IntegerField(allow_null=True)
    n_drafts = s.IntegerField(allow_null=True)
    n_shown = s.IntegerField(allow_null=True)
    expected_accepted = s.FloatField(allow_null=True)
    expected_avoided_microusd = s.IntegerField(allow_null=True)
    expected_verification_microusd = s.IntegerField(allow_null=True)
    expected_net_microusd = s.IntegerField(allow_null=True)
    reason = s.CharField(allow_null=True, help_text="Why nothing is offered, or nothing is known.")


class EstimateShape(s.Serializer[object]):
    object = s.ChoiceField(["estimate"])
    steps = s.JSONField()
    total = s.JSONField()
    worst_batch_microusd = s.IntegerField()
    price_version = s.CharField()
    teacher_price_version = s.CharField()
    assumptions = s.ListField(child=s.CharField())
    budget_microusd = s.IntegerField()
    within_budget = s.BooleanField()
    draft_cache = DraftSavingShape(allow_null=True, help_text="With `drafts=true`; not taken off the estimate.")
