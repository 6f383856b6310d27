"""JSON values and schemas for property tests: small, and of every kind that a json task may have."""

import random
from typing import Any

from hypothesis import strategies as st

names = st.sampled_from(["a", "b", "total", "x/y", "~", "*", "é"])
texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=6)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(names, values, max_size=4)

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,6}$", "description": "as printed"},
        "total": {"type": "number", "minimum": 0},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 8},
        "note": {"anyOf": [{"type": "string", "maxLength": 40}, {"type": "null"}]},
        "kind": {"enum": ["refund", "exchange"]},
    },
    "required": ["order", "kind"],
    "$defs": {
        "item": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
            "required": ["sku", "count"],
        }
    },
}


@st.composite
def orders(draw: st.DrawFn) -> dict[str, Any]:
    """A value that fits ORDER, its keys in any order."""
    value: dict[str, Any] = {
        "order": draw(st.from_regex(r"[A-Z]{2}-[0-9]{1,6}", fullmatch=True)),
        "kind": draw(st.sampled_from(["refund", "exchange"])),
    }
    if draw(st.booleans()):
        value["total"] = draw(st.integers(0, 10**6) | st.floats(0, 1e6).map(lambda x: round(x, 2)))
    if draw(st.booleans()):
        value["note"] = draw(st.none() | texts)
    if draw(st.booleans()):
        item = st.fixed_dictionaries({"count": st.integers(1, 99), "sku": texts})
        value["items"] = draw(st.lists(item, max_size=3))
    return shuffled(value, draw(st.integers(0, 99)))


def shuffled(value: Any, seed: int) -> Any:
    """The same JSON value with the keys of every object in another order."""
    rng = random.Random(seed)
    if isinstance(value, list):
        return [shuffled(item, seed) for item in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    rng.shuffle(keys)
    return {key: shuffled(value[key], seed) for key in keys}
