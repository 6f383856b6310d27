"""Gold that fails the spec's own checks: a warning, or no gate that answers which pass them can pass."""

import json
from typing import Any

import pytest

from backend.domain.planning.preflight.check_lines import JudgedGold, check_lines
from backend.domain.planning.preflight.lines import Check, LineStatus
from backend.domain.spec.parsing import Spec, parse_spec
from tests.backend.domain.spec.test_parsing import document

DATE = {"kind": "copied", "field": "/date"}
WHOLE = {"kind": "length", "max_chars": 30}
GOLD = {"date": "2026-01-02", "total": 5, "kind": "refund"}


def spec_of(*checks: dict[str, Any], gate: dict[str, Any] | None = None, **output: Any) -> Spec:
    properties = {"date": {"type": "string"}, "total": {"type": "integer"}, "kind": {"type": "string"}}
    schema = {"type": "object", "properties": properties}
    inline = [{"input": f"on the second, no {i}", "output": GOLD} for i in range(80)]
    output = {"type": "json", "schema": schema, "checks": list(checks), **output}
    return parse_spec(document(output=output, examples={"inline": inline}, gate=gate or {}))


def rows(n_bad: int, n: int = 40, *, name: str = "copied /date") -> list[JudgedGold]:
    return [JudgedGold(answer=json.dumps(GOLD), failed=(name,) if i < n_bad else ()) for i in range(n)]


def test_gold_that_passes_has_no_line() -> None:
    assert check_lines(spec_of(DATE), rows(0)) == []


@pytest.mark.parametrize(
    ("spec", "n_bad", "status", "why"),
    [
        (spec_of(DATE, accuracy="exact"), 1, LineStatus.WARNING, "no mark"),
        (spec_of(DATE, accuracy="exact"), 20, LineStatus.FAILED, "gate.accuracy_lower"),
        (spec_of(DATE, accuracy="exact", gate={"accuracy_lower": 0.3}), 20, LineStatus.WARNING, "no mark"),
        (spec_of(DATE), 20, LineStatus.WARNING, "no mark"),  # the date wrong: 6 of 7 for these
        (spec_of(DATE), 40, LineStatus.FAILED, "gate.accuracy_lower"),
        (spec_of(DATE, gate={"accuracy_lower": 0.5}), 40, LineStatus.FAILED, "gate.worst_class_recall"),
        (spec_of(DATE, gate={"accuracy_lower": 0.5, "worst_class_recall": 0}), 40, LineStatus.WARNING, "no mark"),
    ],
)
def test_it_fails_where_no_answers_that_pass_the_checks_pass_the_gate(spec, n_bad, status, why) -> None:
    (line,) = check_lines(spec, rows(n_bad))
    assert (line.check, line.status, line.code) == (Check.GATE, status, "gold_fails_checks")
    assert why in line.sentence
    assert f"{n_bad} of 40" in line.sentence
    assert "copied /date" in line.sentence + line.what_to_do


def test_the_spelling_of_a_whole_answer_and_the_words_of_a_text_refuse_nothing() -> None:
    (line,) = check_lines(spec_of(WHOLE, accuracy="exact"), rows(40, name="length"))
    assert line.status is LineStatus.WARNING
    inline = [{"input": f"m {i}", "output": "y"} for i in range(80)]
    text = {"type": "text", "accuracy": "checks", "checks": [WHOLE]}
    (line,) = check_lines(parse_spec(document(output=text, examples={"inline": inline})), rows(40, name="length"))
    assert line.status is LineStatus.WARNING
