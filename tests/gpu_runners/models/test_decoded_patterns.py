"""What the decoder lets through of a pattern is what the check of the answer takes."""

import itertools
import json
from typing import Any

import llguidance
import pytest
from hypothesis import HealthCheck, assume, given, settings

from backend.domain.answers.json_schemas import check_schema
from backend.domain.patterns.decoding import decodable_schema, why_not_decodable
from backend.domain.patterns.matching import UnsafePattern, compile_pattern, occurs_in
from gpu_runners.models.answers import schema_constraint
from gpu_runners.models.constraints import _grammar
from tests.pattern_strategies import meaningful, short_texts

TOKENS = llguidance.LLTokenizer("byte")
TEXTS = [
    *"ab&-~[]{}.kKsSiIß0٣ \t_éÀÿ²\u1e9eıſ\u212a\u0130一𐐀\u00a0\u2028\x85\x1c:",
    "",
    "aa",
    "aaa",
    "ab",
    "b]",
    "&]",
    "a{",
    "{a}",
]


def of(pattern: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": pattern}},
        "required": ["a"],
        "additionalProperties": False,
    }


def decoded(pattern: str, texts: list[str]) -> list[bool] | None:
    """None where the decoder cannot do it at all."""
    first = llguidance.LLMatcher(TOKENS, _grammar(schema_constraint(of(pattern))), log_level=0)
    if first.is_error():
        return None
    found = []
    for text in texts:
        matcher = first.deep_copy()
        wanted = list(json.dumps({"a": text}, ensure_ascii=False).encode())
        is_whole = matcher.validate_tokens(wanted) == len(wanted)
        found.append(is_whole and matcher.consume_tokens(wanted) and matcher.is_accepting())
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"^\w$", r"^\W$", r"^\d$", r"^\D$", r"^\s$", r"^\S$", r"^[\w.-]$", r"^[^\W_]$", "^.$", "(?s)^.$", "^é$"),
        *("^[[a]$", "^[[:alpha:]]$", "^[a&&b]$", "^[a~~b]$", "^a{,2}$", "^a{$", "^{a}$", r"^\141$", r"^\é$"),
        *(r"^\N{DIGIT ONE}$", r"(?a)^\w$", r"^(?a:\d)$", "(?i)^i$", "(?i)^k$", "(?i)^[a-k]$", r"(?i)^[^\ws]$"),
        *("(?x)^ a $", "^a|b$", "^(a|b)$", "^(?P<n>a)?$", "a", "^(a{2}|b){1,2}$", "^[]a]$"),
    ],
)  # fmt: skip
def test_a_decoded_text_is_taken_by_the_check_and_the_other_way_round(pattern: str) -> None:
    assert check_schema(of(pattern)) == []
    assert decoded(pattern, TEXTS) == [occurs_in(pattern, text) for text in TEXTS]


@settings(suppress_health_check=list(HealthCheck))
@given(meaningful, short_texts)
def test_nothing_is_decoded_that_the_check_refuses(pattern: str, text: str) -> None:
    """A text that ends in a new line may be taken and not decoded."""
    assume("\ud800" not in text and not check_schema(of(pattern)))
    found = decoded(pattern, [text])
    assert found is None or not found[0] or occurs_in(pattern, text)


def test_what_is_no_pattern_stays_as_it_is() -> None:
    kept = {"type": "object", "properties": {"pattern": {"const": {"pattern": "a"}}, "e": {"enum": [{"pattern": "b"}]}}}
    assert decodable_schema(kept) == kept
    nested = {"type": "array", "items": {"anyOf": [{"type": "string", "pattern": "a"}]}}
    assert decodable_schema(nested)["items"]["anyOf"][0]["pattern"] == r"[\x{61}]"


def test_every_pattern_that_a_spec_may_have_is_one_that_the_decoder_can_follow() -> None:
    """All orders of a few signs: before, `$a` passed validation and ended a served request."""
    n_decodable = 0
    for length in (1, 2, 3):
        for signs in itertools.product(["a", "^", "$", "(", "|", ")", "?", r"\b", "(?m)", r"\A", r"\Z"], repeat=length):
            pattern = "".join(signs)
            try:
                compile_pattern(pattern)
            except UnsafePattern:
                continue
            if not why_not_decodable(pattern):
                n_decodable += 1
                assert decoded(pattern, []) == [], pattern
    assert n_decodable > 200
