"""Bodies read strictly: what json reads it reads alike, and what readers disagree on it refuses, in linear time."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.strict_json import MAX_DEPTH, MAX_DIGITS, BadJson, read_json
from tests.cpu_time import cpu_s
from tests.hostile_bodies import WORST

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inside: st.lists(inside) | st.dictionaries(TEXT, inside), max_leaves=30)


@given(VALUES, st.booleans())
def test_what_json_writes_is_read_alike(value: object, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert read_json(text.encode()) == json.loads(text) == value


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"\xff", "invalid_utf8", "byte 0"),
        (b"", "malformed_json", "line 1, column 1"),
        (b'{"a": 1, "b": 2, "a": 3}', "malformed_json", "'a' twice"),
        (b"[" * 100_000, "malformed_json", "too deeply"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "malformed_json", "levels deep"),
        (b"9" * (MAX_DIGITS + 1), "malformed_json", "4,301 digits"),
        (b"[NaN]", "malformed_json", "NaN"),
        (b"-Infinity", "malformed_json", "-Infinity"),
        (b"1e400", "malformed_json", "larger than"),
        (b'"\\ud83d"', "malformed_json", "surrogate"),
        (b'{"\\u0000": 1}', "malformed_json", "NUL"),
    ],
)
def test_what_readers_disagree_on_is_refused_with_a_sentence(body: bytes, code: str, words: str) -> None:
    with pytest.raises(BadJson, match=words) as bad:
        read_json(body)
    assert bad.value.code == code


def test_the_bounds_themselves_are_let_through() -> None:
    assert read_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert read_json(b"-" + b"9" * MAX_DIGITS) < 0
    assert read_json(b'"\\ud83d\\ude00\\u0041"') == "\U0001f600A"


@pytest.mark.parametrize("shape", WORST)
def test_a_megabyte_costs_less_than_seconds(shape: str) -> None:
    body = WORST[shape]()

    def read() -> None:
        with suppress(BadJson):
            read_json(body)

    assert cpu_s(read) < 3
