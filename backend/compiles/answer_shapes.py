"""Answers about a compile's held-out answers: one of them, and what all have wrong."""

from typing import Any

from rest_framework import serializers as s

from backend.compiles.heldout import Confusions
from backend.domain.evaluation.differences import Difference, DifferenceKind
from backend.domain.evaluation.generative import Verdict
from backend.domain.evaluation.heldout_answers import HeldoutAnswer
from backend.domain.evaluation.spans import Span, SpanSource
from backend.domain.evaluation.wrong_answers import PartFigures, ValueConfusion
from backend.rest.shapes import Constant, Shape, TextOrNull


class DifferenceShape(Shape[Difference]):
    field = s.CharField(help_text="The path as `field_f1` has it: /lines/*/sku; / is the answer as a whole.")
    kind = s.ChoiceField(
        [kind.value for kind in DifferenceKind],
        help_text="`order`: with accuracy `exact`, all values are there and the order of a list differs.",
    )
    gold = s.ListField(child=s.JSONField(), help_text="The values that gold has and the answer has not.")
    predicted = s.ListField(child=s.JSONField(), help_text="The values that the answer has and gold has not.")


class SpanShape(Shape[Span]):
    path = s.CharField()
    source = s.ChoiceField(
        [source.value for source in SpanSource],
        help_text="`model`: where the model says it copied the value from. `gold`, `predicted`: a text that differs "
        "stands here literally.",
    )
    start = s.IntegerField(allow_null=True, help_text="In Unicode code points; null for a value that was not copied.")
    end = s.IntegerField(allow_null=True)
    confidence_ppm = s.IntegerField(allow_null=True)


class HeldoutAnswerShape(Shape[HeldoutAnswer]):
    object = Constant("heldout_answer")
    row = s.IntegerField(help_text="The number of the held-out row, from 0.")
    input = s.CharField()
    gold = s.CharField(help_text="A label, a text, or JSON as text.")
    predicted = s.CharField(help_text="What was answered, as it was answered.")
    is_wrong = s.BooleanField()
    mark_ppm = s.IntegerField(help_text="What the row counts in the accuracy.")
    confidence_ppm = s.IntegerField(allow_null=True, help_text="The model's; null where a rule answered.")
    is_unsure = s.BooleanField(allow_null=True, help_text="Null of a task that does not abstain.")
    is_by_rule = s.BooleanField()
    failed_checks = s.ListField(child=s.CharField(), source="failed", help_text="An answer that fails one counts 0.")
    verdict = s.ChoiceField([verdict.value for verdict in Verdict], allow_null=True, help_text="A judge's, of texts.")
    differences = DifferenceShape(many=True, help_text="Of json answers, by field.")
    spans = SpanShape(many=True)


class PartFiguresShape(Shape[PartFigures]):
    name = s.CharField(help_text="The field or the label.")
    n = s.IntegerField(help_text="How often gold has it.")
    predicted = s.IntegerField(help_text="How often the answers have it.")
    correct = s.IntegerField()
    score_ppm = s.IntegerField(allow_null=True, help_text="A field's F1, a label's recall.")
    n_wrong = s.IntegerField(help_text="Rows in which the field differs, or the label was not recognised.")
    is_judged = s.BooleanField(help_text="Whether the gate looks at it; not at fields in fewer than 5 answers.")


class ValueConfusionShape(Shape[ValueConfusion]):
    field = TextOrNull(help_text="Null of a label task.")
    gold = s.JSONField(allow_null=True, help_text="Null: gold has no such value.")
    predicted = s.JSONField(allow_null=True, help_text="Null: not answered, or none of the labels.")
    count = s.IntegerField()
    is_closed = s.BooleanField(help_text="Whether the schema lets the field have a few values only.")


class FailedCheckShape(s.Serializer[Any]):
    name = s.CharField()
    n = s.IntegerField(help_text="Answers that fail it.")


class ConfusionsShape(Shape[Confusions]):
    object = Constant("confusions")
    task = s.ChoiceField(["label", "json", "text"])
    n = s.IntegerField(source="counts.n", help_text="Held-out rows.")
    n_wrong = s.IntegerField(source="counts.n_wrong")
    n_invalid = s.IntegerField(source="counts.n_invalid", help_text="Answers that fail a check.")
    worst = s.CharField(allow_null=True, help_text="The field or label that the gate judges as the worst.")
    parts = PartFiguresShape(many=True, help_text="Fields or labels, the worst first.")
    n_confusions = s.IntegerField(source="counts.n_confusions", help_text="Different ones; 100 at most are listed.")
    confusions = ValueConfusionShape(source="counts.confusions", many=True, help_text="The commonest first.")
    failed_checks = FailedCheckShape(many=True)

    def get_worst(self, row: Confusions) -> str | None:
        return None if row.worst is None else row.worst.name

    def get_failed_checks(self, row: Confusions) -> list[dict[str, Any]]:
        ranked = sorted(row.counts.by_check.items(), key=lambda one: (-one[1], one[0]))
        return [{"name": name, "n": n} for name, n in ranked]
