"""Answers about specs, ablations, uploads and teacher keys; those about a compile are in `compiles.shapes`."""

from typing import Any

from rest_framework import serializers as s

from backend.compiles.api.teacher_prices import TeacherPriceShape
from backend.compiles.lifecycle.ablations import Ablation
from backend.compiles.models import Compile, TeacherKey, Upload
from backend.compiles.shapes import FailureShape
from backend.compiles.uploads.rows import UploadPurpose
from backend.domain.evaluation.paired import Paired
from backend.domain.ids import Prefix
from backend.domain.lifecycle import CompileStatus
from backend.domain.planning.ablations import Arm, Comparison, Outcome
from backend.rest.shapes import Constant, PublicId, Shape, TextOrNull, Time


class OutcomeShape(Shape[Outcome]):
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


class PairedShape(Shape[Paired]):
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


class ComparisonShape(Shape[Comparison]):
    selected = OutcomeShape()
    arm = OutcomeShape()
    paired = PairedShape()
    k_score_difference_ppm = s.IntegerField(allow_null=True)
    label_cost_difference_microusd = s.IntegerField()


class AblationShape(Shape[Ablation]):
    first = ("object", "id", "name", "status", "failure", "spent_microusd", "k_score_ppm", "created_at", "ended_at")
    object = Constant("ablation")
    id = PublicId(Prefix.COMPILE, source="compile.id", help_text="The arm's own compile.")
    name = s.CharField(source="compile.name")
    of = PublicId(Prefix.COMPILE, source="compile.ablation_of")
    arm = s.ChoiceField([arm.value for arm in Arm], source="compile.arm")
    status = s.ChoiceField([status.value for status in CompileStatus], source="compile.status")
    failure = FailureShape(allow_null=True)
    spent_microusd = s.IntegerField(source="compile.spent_microusd")
    k_score_ppm = s.IntegerField(source="compile.k_score_ppm", allow_null=True)
    comparison = ComparisonShape(allow_null=True, help_text="Once both sides are evaluated.")
    created_at = Time(source="compile.created_at")
    ended_at = Time(source="compile.ended_at", allow_null=True)

    def get_failure(self, row: Ablation) -> Compile | None:
        return row.compile if row.compile.failure_code else None


class UploadShape(Shape[Upload]):
    id = PublicId(Prefix.UPLOAD)
    object = Constant("upload")
    purpose = s.ChoiceField([purpose.value for purpose in UploadPurpose])
    name = TextOrNull(help_text="A spec may name the newest upload of a name and purpose.")
    sha256 = s.CharField()
    size_bytes = s.IntegerField()
    n_rows = s.IntegerField()
    created_at = Time()


class TeacherKeyShape(Shape[TeacherKey]):
    id = PublicId(Prefix.TEACHER_KEY)
    object = Constant("teacher_key")
    name = s.CharField()
    last4 = s.CharField()
    created_at = Time()


class TeacherKeyTestShape(s.Serializer[Any]):
    id = s.CharField(help_text="The key that was tried.")
    object = Constant("teacher_key_test")
    passed = s.BooleanField()
    detail = s.CharField(help_text="What the provider answered, in a sentence; nothing of its answer is repeated.")


class DraftSavingShape(s.Serializer[Any]):
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


class EstimateShape(s.Serializer[Any]):
    object = s.ChoiceField(["estimate"])
    steps = s.JSONField()
    total = s.JSONField()
    worst_batch_microusd = s.IntegerField()
    teacher_rows = s.IntegerField(help_text="Held-out inputs that the teacher answers too, beside the model.")
    price_version = s.CharField()
    teacher_price_version = s.CharField()
    teacher_price = TeacherPriceShape(help_text="What the teacher's tokens cost; a compile keeps it to its end.")
    fallback_price = TeacherPriceShape(allow_null=True, help_text="Of the fallback model, where there is one.")
    batch_price = TeacherPriceShape(
        allow_null=True, help_text="In batch mode: what a token costs in a batch (synthesis and labeling)."
    )
    batch_fallback_price = TeacherPriceShape(allow_null=True, help_text="The same of the fallback model.")
    batch_window_h = s.IntegerField(
        allow_null=True, help_text="In batch mode: the hours within which a batch is answered, or expires."
    )
    reward_price = TeacherPriceShape(allow_null=True, help_text="Of the model that gives rewards, where one does.")
    judge_price = TeacherPriceShape(allow_null=True, help_text="Of the spec's own judge of drafts, where it names one.")
    assumptions = s.ListField(child=s.CharField())
    warnings = s.ListField(child=s.CharField(), help_text="What is doubtful, such as a price of more than a year ago.")
    budget_microusd = s.IntegerField()
    within_budget = s.BooleanField()
    draft_cache = DraftSavingShape(allow_null=True, help_text="With `drafts=true`; not taken off the estimate.")
