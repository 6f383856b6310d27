"""Rules before the model: what they answer, what they leave to it, and what a broken list costs."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from backend.domain.rules.reading import read_rules
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
        "rule": 0,
    }
    many = found.answers(["three of it", "two of it"] * 20)
    assert [one and one.text for one in many] == [RULED, None] * 20


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
