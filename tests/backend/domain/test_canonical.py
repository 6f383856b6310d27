"""RFC 8785: equal values, equal bytes."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json, sha256_hex, sha256_of
from backend.domain.errors import InvalidInput

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_canonical_json_reads_back_as_the_same_value(value: object) -> None:
    assert json.loads(canonical_json(value)) == value


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), st.integers(0, 9), max_size=6))
def test_the_order_of_keys_does_not_change_the_bytes(value: dict[str, int]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_the_examples_of_the_rfc_are_spelled_as_it_says() -> None:
    # RFC 8785, section 3.2.2 and 3.2.3: ECMAScript numbers, UTF-16 order of keys
    assert canonical_json({"numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 1e-27]}) == (
        b'{"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27]}'
    )
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    ordered = json.loads(canonical_json(dict.fromkeys(keys, 0)))
    assert list(ordered) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_a_digest_is_that_of_the_canonical_bytes() -> None:
    assert sha256_of({"b": 1, "a": (1, 2)}) == sha256_hex(b'{"a":[1,2],"b":1}')
    assert sha256_hex(b"") == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, "\ud800", {1: 2}, {"a": object()}, b"bytes"])
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        canonical_json(value)
    assert refused.value.code == "not_canonical_json"
