"""The schema of a json task's answers, put to work: one normal form, the schema that a decoder is held to, and the
judgement of a value. Schemas come in vetted by `check_schema`; nothing here bounds a stranger's schema again.

Two rules of kolm's own, the same for gold, teachers and models: an object that names its properties and says nothing of
others has no others; and the fields of an answer stand in one order, the required ones as `required` lists them and
then the rest by name. (The order in which `properties` was written cannot be kept: neither the database nor signed JSON
keeps the order of keys.)
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from backend.domain.answers.json_schema_rules import ANNOTATIONS, DEFINITIONS, VALIDATED_ONLY, reference
from backend.domain.answers.json_schema_rules import check_schema as check_schema
from backend.domain.answers.json_validation import BudgetExceeded, Judge, Place, ValidationBudget, judge_of

MAX_ERRORS = 5
MAX_STEPS = 30_000_000
_DROPPED = ANNOTATIONS - {"description"} | {"$schema", *DEFINITIONS}

Validator = Callable[[Any], list[str]]


def normal_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with its references written out, fields in the fixed order and objects closed; annotations go, but
    for the descriptions. Applied to its own result, however its keys were shuffled, it gives the same again."""
    return _normal(schema, schema)


def _inside(part: Any, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
    """`true` and `false`, which may stand for items and additionalProperties, are left alone."""
    return change(part) if isinstance(part, Mapping) else part


def _normal(part: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(part.get("$ref"), str):
        place = reference(part["$ref"])
        if place is None:
            raise ValueError("An unvetted schema came here: a reference points outside of it.")
        target = _normal(root[place[0]][place[1]], root)
        return target | {key: part[key] for key in ("description",) if key in part}
    kept = {key: value for key, value in sorted(part.items()) if key not in _DROPPED}
    kept |= {key: _by_name(kept[key]) for key in ("enum", "const") if key in kept}
    if "properties" in kept:
        kept["properties"] = {name: kept["properties"][name] for name in _field_order(part)}
        kept = dict(sorted(({"additionalProperties": False} | kept).items()))
    return _change(kept, lambda inner: _normal(inner, root))


def _change(part: dict[str, Any], change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """The schema with `change` done to each schema directly inside it."""
    for key in ("items", "additionalProperties"):
        if key in part:
            part[key] = _inside(part[key], change)
    for key in ("prefixItems", "anyOf", "oneOf"):
        if key in part:
            part[key] = [_inside(branch, change) for branch in part[key]]
    if "properties" in part:
        part["properties"] = {name: _inside(field, change) for name, field in part["properties"].items()}
    return part


def _by_name(value: Any) -> Any:
    """A constant's objects have no `required`; their fields stand by name, as an answer's do."""
    if isinstance(value, list):
        return [_by_name(item) for item in value]
    return {name: _by_name(value[name]) for name in sorted(value)} if isinstance(value, dict) else value


def _field_order(part: Mapping[str, Any]) -> list[str]:
    fields = part.get("properties", {})
    first = [name for name in part.get("required", ()) if name in fields]
    return first + sorted(set(fields) - set(first))


def decoding_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a constrained decoder is given: the normal form without what it cannot enforce, oneOf as anyOf.
    Everything that fits `schema` and is spelt by `json_values.answer_text` can be decoded to."""
    return _decodable(normal_schema(schema))


def _decodable(part: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in part.items() if key not in VALIDATED_ONLY | {"description"}}
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    kept = dict(sorted(kept.items()))
    return _change(kept, _decodable)


def validator(schema: Mapping[str, Any], *, budget: ValidationBudget | None = None) -> Validator:
    """A function from a value (as `parse_answer` gives it) to what is wrong with it: at most MAX_ERRORS short texts
    with JSON pointers, none when it fits.

    It never runs for more than a few seconds: a value that would cost more than MAX_STEPS does not fit. With a
    `budget`, which several values share, it raises BudgetExceeded instead. The texts may quote the value: they are for
    the customer, never for a log.
    """
    judge = _judge(json.dumps(schema, ensure_ascii=False))

    def errors(value: Any) -> list[str]:
        try:
            faults = judge.faults(value, None, budget or ValidationBudget(MAX_STEPS))
            return [f"{_pointer(at)}: {message[:200]}" for at, message in islice(faults, MAX_ERRORS)]
        except BudgetExceeded as fault:
            if budget is not None:
                raise
            return [f"the answer: {fault}"]

    return errors


def _pointer(at: Place) -> str:
    steps = []
    while at is not None:
        at, step = at
        steps.append(f"/{step}"[:100])
    return "".join(reversed(steps))[:100] or "the answer"


@lru_cache(maxsize=64)
def _judge(schema_text: str) -> Judge:
    return judge_of(normal_schema(json.loads(schema_text)))
