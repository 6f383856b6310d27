"""The comparison of two tasks by the form of their answers: who reads those of one can read those of the other."""

from collections.abc import Mapping
from typing import Any

from backend.domain.answers.json_schemas import normal_schema


def is_same_form(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether two specs' `output` ask for the same answers: the same labels, the same schema, or text. False of
    an output that is not known ({}).

    >>> is_same_form({"type": "label", "labels": [{"name": "a"}]}, {"type": "label", "labels": [{"name": "b"}]})
    False
    """
    if one.get("type") != other.get("type"):
        return False
    match one.get("type"):
        case "json":
            return is_same_schema(one["schema"], other["schema"])
        case "label":
            return {label["name"] for label in one["labels"]} == {label["name"] for label in other["labels"]}
        case kind:
            return kind == "text"


def is_same_schema(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether two vetted schemas allow the same in the same words: descriptions and orders do not count.

    >>> own = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "null"}}, "required": ["a", "b"]}
    >>> is_same_schema(own | {"title": "Own", "required": ["b", "a"], "additionalProperties": False}, own)
    True
    """
    return bool(_bare(normal_schema(one)) == _bare(normal_schema(other)))


def _bare(part: Any) -> Any:
    """A normal schema without its descriptions, with sets where an order says nothing."""
    if not isinstance(part, Mapping):
        return part
    kept = {name: value for name, value in part.items() if name not in ("description", "required")}
    for name in ("items", "additionalProperties"):
        if name in kept:
            kept[name] = _bare(kept[name])
    for name in ("prefixItems", "anyOf", "oneOf"):
        if name in kept:
            kept[name] = [_bare(branch) for branch in kept[name]]
    if "properties" in kept:
        kept["properties"] = {name: _bare(field) for name, field in kept["properties"].items()}
    if "const" in part:
        kept["const"] = repr(part["const"])  # in Python 1 is True
    for name in ("required", "enum", "type"):
        if isinstance(part.get(name), list) and part[name]:
            kept[name] = {repr(value) for value in part[name]}
    return kept
