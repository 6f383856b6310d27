import json
import random
from typing import Any

import pytest

from backend.domain.canonical import sha256_hex
from backend.domain.rules.reading import MAX_RULES_BYTES, read_rules
from backend.domain.rules.rule_list import EMPTY, InvalidRules, RuleList
from tests.backend.domain.rules.random_lists import field_list, label_list

EVIDENCE = {"seen": 41, "support": 23, "right": 23, "low_ppm": 877_855}
LABEL_RULE = {"when": ["top up", "limit"], "unless": ["failed"], "answer": "top_up_limits", **EVIDENCE}
FIELD_RULE = {"field": 0, "when": ["refund", "<known>"], "unless": [], "value": "refund", **EVIDENCE}


def document(**changes: Any) -> dict[str, Any]:
    return {"format": "kolm-rules/1", "task": "label", "rules": [LABEL_RULE]} | changes


def json_document(*rules: Any, **changes: Any) -> dict[str, Any]:
    lists = {"fields": [["action"], ["nr"]], "vocabularies": [["red shoes"]], "known": ["refund"]}
    return {"format": "kolm-rules/1", "task": "json", "rules": list(rules), **lists} | changes


def read(value: Any) -> RuleList:
    return read_rules(json.dumps(value).encode())


def label_rule(**changes: Any) -> dict[str, Any]:
    return document(rules=[LABEL_RULE | changes])


def field_rule(**changes: Any) -> dict[str, Any]:
    return json_document({k: v for k, v in (FIELD_RULE | changes).items() if v != "gone"})


def copies(**copy: Any) -> dict[str, Any]:
    return field_rule(value="gone", copy=copy)


@pytest.mark.parametrize("make", [label_list, field_list])
def test_a_list_that_was_written_is_read_as_it_was(make: Any) -> None:
    for seed in range(30):
        rules = make(random.Random(seed))
        assert read_rules(rules.to_bytes()) == rules
        assert rules.sha256 == sha256_hex(rules.to_bytes())


def test_what_artifacts_carried_before_there_were_rules_is_an_empty_list() -> None:
    assert read_rules(b"[]") == EMPTY
    assert read_rules(EMPTY.to_bytes()) == EMPTY


KINDS = (
    document(),
    json_document(),
    json_document(FIELD_RULE),
    json_document(FIELD_RULE, low_ppm=951_000),
    label_rule(when=["^ top # $", "<email>"]),
    copies(pattern="code", after="order"),
    copies(pattern="integer", as_number=True),
    copies(vocabulary=0),
    copies(between=["^", "to"]),
)


@pytest.mark.parametrize("value", KINDS)
def test_every_kind_of_rule_is_read(value: Any) -> None:
    assert read(value).to_json() == value


REFUSED = {
    "no object": 3,
    "no format": document(format="kolm-rules/2"),
    "no task": document(task="text"),
    "a key too many": document(code="x"),
    "rules that are no list": document(rules={}),
    "too many rules": document(rules=[LABEL_RULE] * 5_001),
    "a rule without a condition": label_rule(when=[]),
    "too many conditions": label_rule(when=["a"] * 7),
    "a condition that is not normal": label_rule(when=["Top up"]),
    "a condition of two spaces": label_rule(when=["top  up"]),
    "an empty condition": label_rule(when=[""]),
    "marks alone": label_rule(when=["^ $"]),
    "a mark inside": label_rule(when=["top ^ up"]),
    "a certain number and any": label_rule(when=["12 #"]),
    "an unknown pattern": label_rule(when=["<iban>"]),
    "a pattern of its own": label_rule(when=["<(a+)+$>"]),
    "an open pattern": label_rule(when=["<email"]),
    "a label rule that asks for known words": label_rule(when=["<known>"]),
    "a condition that is a number": label_rule(when=[3]),
    "a long answer": label_rule(answer="x" * 1_001),
    "an answer with NUL": label_rule(answer="\0"),
    "half of a surrogate pair": label_rule(answer="\ud800"),
    "a negative count": label_rule(seen=-1),
    "a truth value for a count": label_rule(seen=True),
    "a field that is not there": field_rule(field=2),
    "a truth value for a field": field_rule(field=True),
    "nothing given": field_rule(value="gone"),
    "two things given": field_rule(absent=True),
    "not absent": field_rule(value="gone", absent=False),
    "a list for a value": field_rule(value=[]),
    "a huge number": field_rule(value=2**53),
    "a veto by what is known": field_rule(unless=["<known>"]),
    "a field asked for too early": field_rule(when=[{"field": 1, "is": "x"}]),
    "itself asked for": field_rule(when=[{"field": 0, "is": "x"}]),
    "rules of a field apart": json_document(FIELD_RULE, FIELD_RULE | {"field": 1}, FIELD_RULE),
    "a field inside another": json_document(fields=[["a"], ["a", "b"]]),
    "a field twice": json_document(fields=[["a"], ["a"]]),
    "a field without a name": json_document(fields=[[]]),
    "a known phrase": json_document(known=["red shoes"]),
    "a vocabulary that is not normal": json_document(vocabularies=[["Red"]]),
    "a vocabulary that is not there": copies(vocabulary=1),
    "an unknown pattern copied": copies(pattern="(a+)+"),
    "a copy of nothing": copies(),
    "a copy with a stranger": copies(pattern="code", code="x"),
    "an e-mail as a number": copies(pattern="email", as_number=True),
    "a copy with one end": copies(between=["^"]),
    "a copy between no ends": copies(between=[]),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_rule_list_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRules, match=r"rules\.json"):
        read(value)


BYTES = (
    *(b"", b"\xff\xfe", b"{", b'{"format": 1, "format": 2}', b"[" * 100_000, b"[0.5]", b"[NaN]", b"null", b'"x"'),
    *(b"[" + b" " * MAX_RULES_BYTES + b"]", b"9" * 10_000),
)


@pytest.mark.parametrize("data", BYTES, ids=range(len(BYTES)))
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRules, match=r"rules\.json"):
        read_rules(data)


def test_a_document_that_is_cut_or_altered_anywhere_is_refused_or_still_a_list() -> None:
    data = field_list(random.Random(3)).to_bytes()
    rng = random.Random(4)
    for _ in range(500):
        at = rng.randrange(len(data))
        altered = data[:at] + (bytes([rng.randrange(256)]) + data[at + 1 :] if rng.random() < 0.8 else b"")
        try:
            rules = read_rules(altered)
        except InvalidRules:
            continue
        assert read_rules(rules.to_bytes()) == rules
