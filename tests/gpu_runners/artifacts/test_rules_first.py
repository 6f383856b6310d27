"""Rules before the model: what they answer, what they leave to it, and what a broken list costs."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from backend.domain.rules.reading import read_rules
from backend.domain.rules.rule_list import Copy, Evidence, FieldRule, RuleList
from gpu_runners.artifacts.rules_first import RulesFirst, labels_of, predict_with_rules
from tests.gpu_runners.small_packs import RULED, json_rules, label_rules

LABELS = ["refund", "other"]


def mounted(data: bytes, labels: Sequence[str] | None = None) -> RulesFirst | None:
    return RulesFirst.from_members({"rules.json": data}, labels=labels)


def rules(*pairs: tuple[str, str]) -> RulesFirst:
    return RulesFirst(read_rules(label_rules(*pairs)), labels=LABELS)


class CountingModel:
    """Answers "other" and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        self.asked += texts
        return [{"label": "other", "confidence": 0.5, "latency_us": 9} for _ in texts]


def test_a_rule_answers_with_its_number_and_its_bound() -> None:
    found = rules(("invoice", "other"), ("refund", "refund")).answer("I want a refund")
    assert found is not None
    assert (found.text, found.rule, found.bound_ppm) == ("refund", 2, 970_000)
    assert found.latency_us >= 1
    assert found.row(is_label=True) | {"latency_us": 0} == {
        "label": "refund",
        "confidence": 0.97,
        "latency_us": 0,
        "rule": 2,
    }


@pytest.mark.parametrize("n", [1, 2, 40])
def test_the_model_sees_only_what_no_rule_is_sure_of_and_rows_keep_their_order(n: int) -> None:
    model = CountingModel()
    texts = ["a refund", "where is it?", "refund now"] * n
    rows = predict_with_rules(rules(("refund", "refund")), texts, is_label=True, model=model)
    assert [row["label"] for row in rows] == ["refund", "other", "refund"] * n
    assert [row.get("rule") for row in rows] == [1, None, 1] * n
    assert model.asked == ["where is it?"] * n
    predict_with_rules(rules(("refund", "refund")), ["refund"] * n, is_label=True, model=model)
    assert len(model.asked) == n, "a model that nothing is left for is not called"


def test_json_rules_answer_as_a_whole_and_cost_no_token() -> None:
    found = mounted(json_rules("three"))
    assert found is not None
    assert found.answer("two of it") is None
    answer = found.answer("three of it")
    assert answer is not None
    assert answer.row(is_label=False) | {"latency_us": 0} == {
        "output": RULED,
        "finish_reason": "stop",
        "n_tokens": 0,
        "latency_us": 0,
        "confidence": 0.96,
        "fields": [
            {"path": "/size", "start": None, "end": None, "confidence_ppm": 960_000},
            {"path": "/n", "start": None, "end": None, "confidence_ppm": 960_000},
        ],
        "rule": 0,
    }
    many = found.answers(["three of it", "two of it"] * 20)
    assert [one and one.text for one in many] == [RULED, None] * 20


def order_rules(low_ppm: int) -> RulesFirst:
    """Of a text with one number: the order, which is copied, and its size, which is absent."""

    def rule(field: int, copy: Copy | None) -> FieldRule:
        return FieldRule(
            field=field, when=(), unless=(), value=None, copy=copy, is_absent=copy is None, evidence=Evidence()
        )

    rules = (rule(0, Copy(pattern="number")), rule(1, None))
    made = RuleList(task="json", rules=rules, fields=(("order", "nr"), ("size",)), low_ppm=low_ppm)
    return RulesFirst(read_rules(made.to_bytes()), labels=None)


@pytest.mark.parametrize("n", [1, 20])
def test_a_field_that_a_rule_copied_says_from_where_and_is_as_sure_as_the_whole(n: int) -> None:
    text = "😀 cancel no. 7719 please"
    for answer in order_rules(951_000).answers([text] * n):
        assert answer is not None
        row = answer.row(is_label=False)
        assert (row["output"], row["confidence"]) == ('{"order": {"nr": "7719"}}', 0.951)
        (field,) = row["fields"]
        assert (field["path"], field["confidence_ppm"]) == ("/order/nr", 951_000)
        assert text[field["start"] : field["end"]] == "7719"


def test_rules_of_a_release_that_did_not_measure_the_whole_answer_say_no_confidence() -> None:
    answer = order_rules(0).answer("cancel no. 7719 please")
    assert answer is not None
    row = answer.row(is_label=False)
    assert (row["fields"], row["rule"]) == ([], 0)
    assert "confidence" not in row


def test_a_rule_for_what_is_no_label_leaves_the_text_to_the_model() -> None:
    assert rules(("refund", "<script>")).answer("a refund") is None
    assert [one is None for one in rules(("refund", "gone"), ("order", "other")).answers(["refund", "order"] * 9)] == [
        True,
        False,
    ] * 9


@pytest.mark.parametrize("data", [b"", b"{", b'{"format": "kolm-rules/9"}', b"\xff", b'{"rules": 1}'])
def test_rules_that_cannot_be_read_are_left_out_with_a_warning(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert mounted(data) is None
    assert "rules.json is left out" in caplog.text


@pytest.mark.parametrize("members", [{}, {"rules.json": b"[]"}])
def test_an_artifact_without_rules_has_none(members: dict[str, bytes], caplog: pytest.LogCaptureFixture) -> None:
    assert RulesFirst.from_members(members, labels=LABELS) is None
    assert not caplog.records


def test_labels_are_those_that_the_model_knows() -> None:
    assert labels_of({"labels.json": b'["a", "b"]'}) == ["a", "b"]
    assert labels_of({"prompt.json": b'{"answer": {"type": "label", "labels": ["x"]}}'}) == ["x"]
    assert labels_of({"prompt.json": b'{"answer": {"type": "text"}}'}) is None
    assert labels_of({"labels.json": b"{", "prompt.json": b"[]"}) is None
