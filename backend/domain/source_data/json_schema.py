"""A schema for answers that are JSON objects, from the answers themselves: a start to be read and corrected."""

import json
from collections.abc import Sequence
from typing import Any

MOST_CHOICES = 12
LEAST_OF_A_CHOICE = 3
MOST_FIELDS = 60
_DEPTH = 4


def infer_schema(answers: Sequence[str]) -> dict[str, Any]:
    """Fields with the types that were seen; required where every object has them; a few texts that repeat are an enum.
    Other fields are not allowed.

    >>> infer_schema(['{"total": 3}', '{"total": null}'])["properties"]
    {'total': {'type': ['integer', 'null']}}
    """
    values = [value for value in map(_decode, answers) if isinstance(value, dict)]
    return _object(values, _DEPTH)


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object(values: Sequence[dict[str, Any]], depth: int) -> dict[str, Any]:
    names: dict[str, None] = {}
    for value in values:
        names.update(dict.fromkeys(value))
    properties = {
        name: _schema([value[name] for value in values if name in value], depth) for name in list(names)[:MOST_FIELDS]
    }
    required = [name for name in properties if all(name in value for value in values)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(values: Sequence[Any], depth: int) -> dict[str, Any]:
    types = sorted({_type(value) for value in values}, key=_ORDER.index)
    if "integer" in types and "number" in types:
        types.remove("integer")
    filled = [value for value in values if value is not None]
    if types and types[0] == "object" and depth:
        schema = _object([value for value in filled if isinstance(value, dict)], depth - 1)
    elif types and types[0] == "array" and depth:
        elements = [element for value in filled if isinstance(value, list) for element in value]
        schema = {"type": "array", "items": _schema(elements, depth - 1) if elements else {}}
    else:
        schema = {"type": types[0] if types else "string"} | _choices(filled, types)
    if len(types) > 1 and not isinstance(schema["type"], list):
        schema["type"] = types
        if "enum" in schema and "null" in types:
            schema["enum"] = [*schema["enum"], None]
    return schema


_ORDER = ("object", "array", "string", "integer", "number", "boolean", "null")


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _choices(values: Sequence[Any], types: Sequence[str]) -> dict[str, Any]:
    """A closed set, where it has the look of one: few texts without a space, each several times."""
    if not set(types) <= {"string", "null"} or not values:
        return {}
    counts = {value: values.count(value) for value in set(values[:500])} if len(set(values)) <= MOST_CHOICES else {}
    is_closed = len(counts) > 1 and all(n >= LEAST_OF_A_CHOICE and len(str(name)) <= 40 for name, n in counts.items())
    return {"enum": sorted(counts)} if is_closed else {}
