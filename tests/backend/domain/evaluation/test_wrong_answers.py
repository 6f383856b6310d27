"""Which held-out answers are wrong, in which fields, and which values are taken for which."""

import json
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.json_values import field_scores
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import evaluate
from backend.domain.evaluation.differences import closed_fields, differences_between, read_value, value_text
from backend.domain.evaluation.generative import evaluate_json
from backend.domain.evaluation.heldout_answers import HeldoutAnswers
from backend.domain.evaluation.spans import Span, SpanSource, segments
from backend.domain.evaluation.wrong_answers import AnswerFilter, count_wrong, rows_of
from backend.domain.spec.outputs import JsonOutput, LabelOutput, TextOutput
from tests.backend.domain.answers.json_worlds import objects

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["order", "return"]},
        "urgent": {"type": "boolean"},
        "note": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
}
JSON = JsonOutput.model_validate({"type": "json", "schema": SCHEMA})
LABEL = LabelOutput.model_validate(
    {"type": "label", "labels": [{"name": "refund"}, {"name": "other"}, {"name": "null"}]}
)


def json_answers(*pairs: tuple[Any, Any], output: JsonOutput = JSON, **measured: Any) -> HeldoutAnswers:
    """(gold, answer) by row; an answer that is a text is no JSON."""
    heldout = [
        {"input": f"row {i} has AB-1 and 😀 XY-2", "output": json.dumps(gold)} for i, (gold, _) in enumerate(pairs)
    ]
    predictions = [answer if isinstance(answer, str) else json.dumps(answer) for _, answer in pairs]
    failed = [["schema"] if isinstance(answer, str) else [] for _, answer in pairs]
    return HeldoutAnswers.from_json(output, heldout, {"predictions": predictions, "failed": failed} | measured)


def label_answers(*pairs: tuple[str, str], **measured: Any) -> HeldoutAnswers:
    heldout = [{"input": f"row {i}", "output": gold} for i, (gold, _) in enumerate(pairs)]
    return HeldoutAnswers.from_json(LABEL, heldout, {"predictions": [answer for _, answer in pairs]} | measured)


def rows(answers: HeldoutAnswers, **wanted: Any) -> list[int]:
    return list(rows_of(answers, AnswerFilter.of_task(answers.output, **wanted)))


def test_each_field_that_differs_has_its_values_and_the_kind_of_its_fault():
    gold = {"kind": "order", "urgent": True, "lines": [{"sku": "AB-1"}, {"sku": "B"}, {"sku": "B"}]}
    answer = {"kind": "return", "note": "hi", "lines": [{"sku": "B"}, {"sku": "AB-1 "}, {"sku": "C"}]}
    (row,) = [json_answers((gold, answer)).answer(0)]
    assert row.is_wrong
    assert [(one.field, one.kind, one.gold, one.predicted) for one in row.differences] == [
        ("/kind", "other_value", ("order",), ("return",)),
        ("/lines/*/sku", "other_value", ("B",), ("C",)),
        ("/note", "extra", (), ("hi",)),
        ("/urgent", "missing", (True,), ()),
    ]
    assert row.mark_ppm == field_scores(answer, gold).f1_ppm


@given(objects, objects)
def test_an_answer_differs_exactly_where_its_field_f1_is_not_whole(answer: Any, gold: Any):
    scores = field_scores(answer, gold)
    differing = differences_between(answer, gold)
    assert sum(len(one.gold) for one in differing) == scores.fn
    assert sum(len(one.predicted) for one in differing) == scores.fp


@given(
    st.lists(st.tuples(objects, objects, st.booleans()), min_size=1, max_size=8), st.sampled_from(["field_f1", "exact"])
)
def test_the_marks_are_those_of_the_evaluation(pairs: list[Any], accuracy: str):
    output = JsonOutput.model_validate(
        {"type": "json", "schema": {"type": "object", "additionalProperties": True}, "accuracy": accuracy}
    )
    failed = [[] if ok else ["copied"] for _, _, ok in pairs]
    answers = json_answers(*[(gold, answer) for gold, answer, _ in pairs], output=output, failed=failed)
    evaluation = evaluate_json(output, answers.gold, answers.predictions, passed=[not names for names in failed])
    judged = [answers.answer(row) for row in range(len(answers))]
    assert sum(one.mark_ppm for one in judged) == evaluation.marks_ppm
    assert [one.is_wrong for one in judged] == [one.mark_ppm < 1_000_000 for one in judged]


def test_a_list_in_another_order_is_wrong_where_the_accuracy_is_exact():
    pair = ({"lines": [{"sku": "A"}, {"sku": "B"}]}, {"lines": [{"sku": "B"}, {"sku": "A"}]})
    exact = JsonOutput.model_validate({"type": "json", "schema": SCHEMA, "accuracy": "exact"})
    assert not json_answers(pair).judge(0).is_wrong
    (one,) = json_answers(pair, output=exact).judge(0).differences
    assert (one.field, one.kind) == ("/", "order")


def test_what_is_no_json_misses_every_field_and_what_fails_a_check_keeps_what_it_says():
    broken = json_answers(({"kind": "order"}, "{"))
    assert [(one.kind, one.gold) for one in broken.judge(0).differences] == [("missing", ("order",))]
    refused = json_answers(({"kind": "order"}, {"kind": "order"}), failed=[["copied /kind"]]).answer(0)
    assert (refused.is_wrong, refused.failed, refused.differences, refused.mark_ppm) == (True, ("copied /kind",), (), 0)


def test_confusions_are_counted_by_field_and_value_and_absence_is_a_value():
    answers = json_answers(
        ({"kind": "order", "urgent": True}, {"kind": "return", "urgent": True}),
        ({"kind": "order", "urgent": True}, {"kind": "return"}),
        ({"kind": "order", "note": "a"}, {"kind": "order", "note": "b"}),
        ({"kind": "order"}, {"kind": "order"}),
    )
    counts = count_wrong(answers)
    assert (counts.n, counts.n_wrong, counts.n_invalid, counts.n_confusions) == (4, 3, 0, 3)
    assert [(one.field, one.gold, one.predicted, one.count, one.is_closed) for one in counts.confusions] == [
        ("/kind", "order", "return", 2, True),
        ("/urgent", True, None, 1, True),
        ("/note", "a", "b", 1, False),
    ]
    assert dict(counts.by_field) == {"/kind": 2, "/note": 1, "/urgent": 1}


def test_true_and_1_are_two_values_and_1_and_1_point_0_are_one():
    answers = json_answers(({"x": True}, {"x": 1}), ({"x": 1}, {"x": 2.0}), ({"x": 1.0}, {"x": 2}))
    found = {one.typed: one.count for one in count_wrong(answers).confusions}
    assert found == {("true", "1"): 1, ("1", "2"): 2}


def test_several_values_of_a_list_are_not_guessed_into_pairs():
    (one,) = differences_between({"l": ["c"]}, {"l": ["a", "b"]})
    assert one.pairs == (("a", None), ("b", None), (None, "c"))


def test_every_confusion_filters_the_rows_that_it_counts():
    answers = json_answers(
        ({"kind": "order", "urgent": True}, {"kind": "return"}),
        ({"kind": "return", "note": "true"}, {"kind": "order", "note": "x"}),
        ({"kind": "order"}, {"kind": "order"}),
    )
    for one in count_wrong(answers).confusions:
        gold, predicted = one.typed
        assert len(rows(answers, field=one.field, gold=gold, predicted=predicted)) == one.count
    assert rows(answers, field="/kind") == [0, 1]
    assert rows(answers, gold="order") == [0]
    assert rows(answers, gold='"true"') == [1]
    assert rows(answers, gold="true") == [0]
    assert rows(answers, predicted="null") == [0]
    assert rows(answers, is_wrong=False) == [2]


def test_a_label_that_is_none_is_absent_and_a_label_called_null_is_a_label():
    answers = label_answers(("refund", "other"), ("refund", "maybe"), ("other", "null"), ("null", "null"))
    counts = count_wrong(answers)
    assert [(one.gold, one.predicted, one.count) for one in counts.confusions] == [
        ("other", "null", 1),
        ("refund", "other", 1),
        ("refund", None, 1),
    ]
    assert rows(answers, gold="refund", predicted="") == [1]
    assert rows(answers, predicted="null") == [2, 3]
    assert rows(answers, label="other", is_wrong=True) == [0, 2]


def test_the_confusions_of_labels_are_the_evaluations():
    pairs = [("refund", "other")] * 3 + [("other", "refund"), ("other", "?"), ("null", "null")]
    evaluation = evaluate(["refund", "other", "null"], [gold for gold, _ in pairs], [answer for _, answer in pairs])
    counts = count_wrong(label_answers(*pairs))
    assert {(one.gold, one.predicted or "", one.count) for one in counts.confusions} == {
        (one.truth, one.predicted, one.count) for one in evaluation.confusions
    }
    parts = counts.parts(evaluation.to_json()["per_class"])
    assert evaluation.worst_class is not None
    assert parts[0].name == evaluation.worst_class.label
    assert {part.name: part.n_wrong for part in parts} == {"refund": 3, "other": 2, "null": 0}


def test_the_worst_field_is_the_gates():
    answers = json_answers(
        *[({"kind": "order", "note": "a"}, {"kind": "return", "note": "a"})] * 5, ({"urgent": True}, {})
    )
    evaluation = evaluate_json(JSON, answers.gold, answers.predictions, passed=[True] * 6)
    parts = count_wrong(answers).parts(evaluation.to_json()["per_class"])
    assert evaluation.worst_field is not None
    assert parts[0].name == evaluation.worst_field.label == "/kind"
    assert (parts[-1].name, parts[-1].is_judged) == ("/urgent", False)


def test_an_unsure_answer_is_one_below_the_threshold_that_no_rule_gave():
    threshold = {"ppm": 800_000, "target_ppm": 900_000, "basis": "bound", "n": 9}
    measured = {"confidences_ppm": [799_999, 800_000, 1], "threshold": threshold, "rule_rows": [2]}
    answers = label_answers(*[("refund", "refund")] * 3, **measured)
    assert [(one.is_unsure, one.confidence_ppm, one.is_by_rule) for one in map(answers.answer, range(3))] == [
        (True, 799_999, False),
        (False, 800_000, False),
        (False, None, True),
    ]
    assert label_answers(("refund", "other")).answer(0).is_unsure is None


def test_where_the_model_read_is_not_said_of_an_answer_that_a_rule_gave():
    read = [[{"path": "/note", "start": 0, "end": 1, "confidence_ppm": 900_000}]] * 2
    answers = json_answers(({"note": "a"}, {"note": "a"}), ({"note": "a"}, {"note": "a"}), fields=read, rule_rows=[1])
    assert [len(answers.answer(row).spans) for row in range(2)] == [1, 0]


def test_a_text_is_wrong_when_it_fails_a_check_or_lost():
    output = TextOutput.model_validate({"type": "text", "accuracy": "judge"})
    measured = {"predictions": ["a", "b", "c"], "failed": [[], [], ["length"]], "verdicts": ["tie", "loss", "win"]}
    answers = HeldoutAnswers.from_json(output, [{"input": "i", "output": "g"}] * 3, measured)
    assert [one.is_wrong for one in map(answers.answer, range(3))] == [False, True, True]
    assert rows(answers, check="length") == [2]
    assert dict(count_wrong(answers).by_check) == {"length": 1}


def test_filters_that_a_kind_of_task_has_nothing_for_are_refused():
    for output, wanted in [(JSON, {"label": "a"}), (LABEL, {"field": "/a"})]:
        with pytest.raises(InvalidInput):
            AnswerFilter.of_task(output, **wanted)
    with pytest.raises(InvalidInput):
        AnswerFilter.of_task(TextOutput.model_validate({"type": "text"}), gold="a")


def test_the_rows_can_be_walked_both_ways():
    answers = label_answers(*[("refund", "other"), ("refund", "refund")] * 4)
    wrong = AnswerFilter(is_wrong=True)
    assert list(rows_of(answers, wrong, after=0)) == [2, 4, 6]
    assert list(islice(rows_of(answers, wrong, before=6), 2)) == [4, 2]
    assert list(rows_of(answers, wrong, after=99)) == list(rows_of(answers, wrong, before=0)) == []


def test_spans_are_the_models_and_those_where_a_differing_text_stands():
    entries = [
        {"path": "/lines/0/sku", "start": 10, "end": 14, "confidence_ppm": 987_000},
        {"path": "/kind", "start": None, "end": None, "confidence_ppm": 5},
        {"path": "/note", "start": 3, "end": 999},
    ]
    pair = ({"lines": [{"sku": "XY-2"}]}, {"lines": [{"sku": "AB-1"}]})
    row = json_answers(pair, fields=[entries]).answer(0)
    assert [(one.path, one.source, one.start, one.end) for one in row.spans] == [
        ("/lines/0/sku", "model", 10, 14),
        ("/kind", "model", None, None),
        ("/note", "model", None, None),
        ("/lines/*/sku", "gold", 21, 25),
        ("/lines/*/sku", "predicted", 10, 14),
    ]
    parts = segments(row.input, row.spans)
    assert [(part.text, len(part.spans)) for part in parts if part.spans] == [("AB-1", 2), ("XY-2", 1)]
    assert "".join(part.text for part in parts) == row.input


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_segments_put_together_are_the_text(text: str, places: list[tuple[int, int]]):
    spans = [Span(path="/a", source=SpanSource.MODEL, start=min(place), end=max(place)) for place in places]
    parts = segments(text, spans)
    assert "".join(part.text for part in parts) == text
    assert len(parts) <= 2 * len(spans) + 1


def test_closed_fields_are_those_of_few_values_in_references_and_branches_too():
    schema = {
        "type": "object",
        "$defs": {"unit": {"enum": ["kg", "g"]}},
        "properties": {
            "a/b": {"const": 1},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"unit": {"$ref": "#/$defs/unit"}}}},
            "flag": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "free": {"type": "string"},
        },
    }
    assert closed_fields(schema) == {"/a~1b", "/lines/*/unit", "/flag"}


@given(st.one_of(st.text(), st.booleans(), st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_value_is_read_back_from_its_text(value: Any):
    assert value_text(read_value(value_text(value))) == value_text(value)


def test_as_many_answers_as_inputs_are_needed():
    with pytest.raises(InvalidInput):
        HeldoutAnswers.from_json(LABEL, [], {"predictions": ["a"]})
