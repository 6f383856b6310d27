"""Answers as JSON: what is refused, the one spelling, and the comparison by fields against a plain reference."""

import json
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.answers.json_values import (
    MAX_CHARS,
    BadAnswer,
    answer_text,
    consensus,
    field_scores,
    is_exact,
    parse_answer,
    strip_fence,
)
from backend.domain.answers.labels import vote
from tests.backend.domain.answers.json_worlds import ORDER, objects, orders, shuffled, values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        '{"a": 1',
        '{"a": 1} and more',
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 9007199254740992}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": 1, "a": 2}',
        '{"b": {"a": 1, "a": 1}}',
        '{"a": "\\ud800"}',
        '{"\\ud800": 1}',
        '{"a": "x\\u0000y"}',
        "{'a': 1}",
        '{"a": 1,}',
        "[" * 15_000,
        "[" * 20 + "]" * 20,
        '{"a":' * 3000 + "1" + "}" * 3000,
        json.dumps(list(range(2_100))),
        '"' + "x" * MAX_CHARS + '"',
    ],
)
def test_what_is_no_answer_is_refused_at_once_and_not_repeated(text: str) -> None:
    started = time.process_time()
    with pytest.raises(BadAnswer) as caught:
        parse_answer(text)
    assert time.process_time() - started < 0.5
    assert len(str(caught.value)) < 120


@given(values)
def test_every_value_that_json_can_hold_is_read_as_it_was_written(value: Any) -> None:
    assert parse_answer(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text", ['```json\n{"a": 1}\n```', '```\n{"a": 1}```', ' ```JSON \r\n{"a": 1}\n``` \n', '{"a": 1}']
)
def test_a_fence_around_an_answer_is_taken_off(text: str) -> None:
    assert parse_answer(strip_fence(text)) == {"a": 1}


def test_an_answer_stands_in_the_order_of_required_and_then_by_name() -> None:
    value = {"items": [{"count": 2.0, "sku": "é\n"}], "total": 3, "kind": "refund", "order": "AB-1"}
    text = '{"order": "AB-1", "kind": "refund", "items": [{"sku": "é\\n", "count": 2}], "total": 3}'
    assert answer_text(value, ORDER) == text


@given(orders(), st.integers(0, 99))
def test_the_spelling_does_not_know_the_order_of_anybodys_keys(value: dict[str, Any], seed: int) -> None:
    """The schema goes through jsonb and through canonical JSON, which keep no order."""
    text = answer_text(value, ORDER)
    assert answer_text(shuffled(value, seed), shuffled(ORDER, seed)) == text
    assert answer_text(value, shuffled(normal_schema(ORDER), seed)) == text
    assert parse_answer(text) == value


@given(values, objects)
def test_a_value_that_does_not_fit_the_schema_is_spelt_all_the_same(value: Any, more: dict[str, Any]) -> None:
    for odd in (value, more, {"order": value, "items": value}):
        assert parse_answer(answer_text(odd, ORDER)) == odd


def flat(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str, Any]]:
    """Path, kind and leaf; one entry for each time a leaf stands there."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in flat(item, (*path, f"key {key}"))]
    if isinstance(value, list):
        return [leaf for item in value for leaf in flat(item, (*path, "item"))]
    if value is None:
        return []
    if isinstance(value, bool | str):
        text = unicodedata.normalize("NFC", value).strip() if isinstance(value, str) else value
        return [(path, type(value).__name__, text)]
    return [(path, "number", value)]


@given(values, values)
def test_fields_are_matched_as_a_multiset(predicted: Any, gold: Any) -> None:
    rest, tp = flat(gold), 0
    for leaf in flat(predicted):
        if leaf in rest:
            rest.remove(leaf)
            tp += 1
    counts = field_scores(predicted, gold)
    assert (counts.tp, counts.fp, counts.fn) == (tp, len(flat(predicted)) - tp, len(rest))
    other_way = field_scores(gold, predicted)
    assert (other_way.tp, other_way.fp, other_way.fn) == (counts.tp, counts.fn, counts.fp)
    assert 0 <= counts.f1_ppm == other_way.f1_ppm <= 1_000_000


@given(values, values, st.integers(0, 99))
def test_what_is_exact_has_every_field(predicted: Any, gold: Any, seed: int) -> None:
    assert is_exact(shuffled(gold, seed), gold)
    assert is_exact(predicted, gold) == is_exact(gold, predicted)
    if is_exact(predicted, gold):
        assert field_scores(predicted, gold).f1_ppm == 1_000_000


@pytest.mark.parametrize(
    ("predicted", "gold", "f1_ppm", "exact"),
    [
        ({"a": 1}, {"a": 1.0}, 1_000_000, True),
        ({"a": True}, {"a": 1}, 0, False),
        ({"a": "1"}, {"a": 1}, 0, False),
        ({"a": " caf\u00e9 "}, {"a": "cafe\u0301"}, 1_000_000, True),
        ({"a": "Cafe"}, {"a": "cafe"}, 0, False),
        ({"a": 1, "b": None}, {"a": 1}, 1_000_000, True),
        ({"a": []}, {}, 1_000_000, False),
        ({"t": ["x", "y"]}, {"t": ["y", "x"]}, 1_000_000, False),
        ({"t": ["x", "x"]}, {"t": ["x"]}, 666_666, False),
        ([{"s": 1, "c": 2}, {"s": 3, "c": 4}], [{"s": 1, "c": 4}, {"s": 3, "c": 2}], 1_000_000, False),
        ({"*": "x"}, ["x"], 0, False),
        ({}, {"a": 1}, 0, False),
        ({}, {}, 1_000_000, True),
    ],
)
def test_how_fields_compare(predicted: Any, gold: Any, f1_ppm: int, exact: bool) -> None:
    assert field_scores(predicted, gold).f1_ppm == f1_ppm
    assert is_exact(predicted, gold) is exact


@given(st.lists(st.none() | st.sampled_from([1, 2, 3]), min_size=1, max_size=8))
def test_of_answers_that_share_nothing_or_all_the_consensus_is_the_vote(answers: list[int | None]) -> None:
    samples = [None if n is None else {"a": f"answer {n}", "b": n} for n in answers]
    labels = [None if n is None else str(n) for n in answers]
    found, voted = consensus(samples, len(samples)), vote(labels, {"1", "2", "3"})
    assert found.agreement_ppm == voted.agreement_ppm
    assert found.n_valid == len(samples) - samples.count(None)
    if voted.label is not None:
        assert found.index == labels.index(voted.label)
        assert found.reaches(0.6) == voted.reaches(0.6)


@given(st.lists(st.none() | objects, max_size=6), st.integers(0, 3))
def test_the_consensus_is_the_answer_most_like_all_others(samples: list[Any], missing: int) -> None:
    asked = len(samples) + missing
    found = consensus(samples, asked) if asked else consensus(samples, 1)
    valid = [i for i, sample in enumerate(samples) if sample is not None]
    if not valid:
        assert (found.index, found.agreement_ppm, found.reaches(0.01)) == (None, 0, False)
        return
    likeness = {i: sum(field_scores(samples[i], samples[j]).f1_ppm for j in valid if j != i) for i in valid}
    assert likeness[found.index] == max(likeness.values())
    assert found.agreement_ppm == (likeness[found.index] + 1_000_000) // asked <= 1_000_000


def test_more_answers_than_were_asked_for_are_no_consensus() -> None:
    with pytest.raises(ValueError, match="2 samples where 1"):
        consensus([{"a": 1}, {"a": 1}], 1)
