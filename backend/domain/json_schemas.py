"""The schema of a json task's answers, put to work: one normal form, the schema that a decoder is held to, and the
judgement of a value. Schemas come in vetted by `check_schema`; nothing here bounds a stranger's schema again.

Two rules of kolm's own, the same for gold, teachers and models: an object that names its properties and says nothing of
others has no others; and the fields of an answer stand in one order, the required ones as `required` lists them and
then the rest by name. (The order in which `properties` was written cannot be kept: neither the database nor signed JSON
keeps the order of keys.)
"""

import datetime
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from backend.domain.json_schema_rules import ANNOTATIONS, DEFINITIONS, VALIDATED_ONLY, reference
from backend.domain.json_schema_rules import check_schema as check_schema
from backend.domain.patterns import MAX_MATCHED_CHARS, Pattern, compile_pattern

MAX_ERRORS = 5
MAX_STEPS = 30_000_000
STEPS_A_BRANCH = 1_000  # of anyOf and oneOf: each may hold a whole schema
STEPS_A_PATTERN = 200_000  # to read one, should it be kept no longer: measured up to 25 ms
STEPS_A_MATCH = 200
INSTRUCTIONS_A_STEP = 50  # of a pattern's program, for each character; a text made for it may cost four times that
_DROPPED = ANNOTATIONS - {"description"} | {"$schema", *DEFINITIONS}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,8}")
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d{1,9})?([zZ]|[+-]\d\d:\d\d)")

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
    return _changed(kept, lambda inner: _normal(inner, root))


def _changed(part: dict[str, Any], change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
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
    """What a constrained decoder is given: the normal form without what it cannot enforce, oneOf as anyOf. Everything
    that fits `schema` and is spelt by `json_answers.answer_text` can be decoded to."""
    return _decodable(normal_schema(schema))


def _decodable(part: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in part.items() if key not in VALIDATED_ONLY | {"description"}}
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    kept = dict(sorted(kept.items()))
    return _changed(kept, _decodable)


class Purse:
    """What a check may still cost, in steps of which some ten million take a second. A stranger's schema and a
    stranger's answer, each of a lawful size, can be made to cost minutes together."""

    def __init__(self, steps_left: int) -> None:
        self.left = steps_left
        self._patterns: dict[str, Pattern] = {}

    def spend(self, n_steps: int) -> None:
        self.left -= n_steps
        if self.left < 0:
            raise TooCostly("It takes too long to be checked against the schema.")

    def pattern(self, source: str) -> Pattern:
        """Each is paid for once, and read once however many others there are."""
        if source not in self._patterns:
            self.spend(STEPS_A_PATTERN)
            self._patterns[source] = compile_pattern(source)
        return self._patterns[source]


class TooCostly(Exception):
    """The purse is empty."""


_PURSE: ContextVar[Purse] = ContextVar("purse")


def validator(schema: Mapping[str, Any], *, purse: Purse | None = None) -> Validator:
    """A function from a value (as `parse_answer` gives it) to what is wrong with it: at most MAX_ERRORS short texts
    with JSON pointers, none when it fits.

    It never runs for more than a few seconds: a value that would cost more than MAX_STEPS does not fit. With a `purse`,
    which several values share, it raises TooCostly instead. The texts may quote the value: they are for the customer,
    never for a log.
    """
    judge = _judge(json.dumps(schema, ensure_ascii=False))

    def errors(value: Any) -> list[str]:
        token = _PURSE.set(purse or Purse(MAX_STEPS))
        try:
            return _errors(judge, value)
        except TooCostly as fault:
            if purse is not None:
                raise
            return [f"the answer: {fault}"]
        finally:
            _PURSE.reset(token)

    return errors


def _errors(judge: Any, value: Any) -> list[str]:
    found: list[str] = []
    for error in judge.iter_errors(value):
        pointer = "".join(f"/{step}" for step in error.absolute_path) or "the answer"
        found.append(f"{pointer[:100]}: {error.message[:200]}")
        if len(found) == MAX_ERRORS:
            break
    return found


@lru_cache(maxsize=64)
def _judge(schema_text: str) -> Any:
    import jsonschema  # half a second of CPU, which a web process does not spend at its start

    rules = {"pattern": _pattern, "format": _format, "uniqueItems": _unique}
    rules |= {name: _paid(jsonschema.Draft202012Validator.VALIDATORS[name]) for name in ("anyOf", "oneOf")}
    made = jsonschema.validators.extend(jsonschema.Draft202012Validator, rules)  # type: ignore[no-untyped-call]
    return made(normal_schema(json.loads(schema_text)))


def _paid(rule: Callable[..., Any]) -> Callable[..., Any]:
    def paid(judge: Any, branches: list[Any], value: object, schema: object) -> Iterator[Any]:
        _PURSE.get().spend(STEPS_A_BRANCH * len(branches))
        yield from rule(judge, branches, value, schema)

    return paid


def _pattern(_judge: Any, pattern: str, value: object, _schema: object) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not isinstance(value, str):
        return
    if len(value) > MAX_MATCHED_CHARS:
        yield ValidationError(f"has more than the {MAX_MATCHED_CHARS:,} characters that are matched with a pattern")
        return
    purse = _PURSE.get()
    compiled = purse.pattern(pattern)
    purse.spend(STEPS_A_MATCH + len(value) * compiled.size // INSTRUCTIONS_A_STEP)
    if not compiled.found_in(value):
        yield ValidationError(f"does not match {pattern!r}")


def _unique(_judge: Any, is_asked: bool, value: object, _schema: object) -> Iterator[Any]:
    from jsonschema import ValidationError

    if is_asked and isinstance(value, list):
        texts = {json.dumps(_whole(item), sort_keys=True) for item in value}
        if len(texts) < len(value):
            yield ValidationError("holds one value twice")


def _whole(value: object) -> object:
    """1.0 and 1 are one number in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return value


def _format(_judge: Any, name: str, value: object, _schema: object) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(value, str) and not (len(value) <= MAX_MATCHED_CHARS and _FORMATS[name](value)):
        yield ValidationError(f"is no {name}")


def _reads(read: Callable[[str], object]) -> Callable[[str], bool]:
    def is_one(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return is_one


def _is_date(text: str) -> bool:
    return len(text) == 10 and text[4] == text[7] == "-" and _reads(datetime.date.fromisoformat)(text)


def _is_time(text: str) -> bool:
    if _TIME.fullmatch(text) is None:
        return False
    return _reads(datetime.time.fromisoformat)(re.sub(r"\.\d+", "", text).upper())


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": lambda text: text[10:11] in "Tt" and _is_date(text[:10]) and _is_time(text[11:]),
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "ipv4": _reads(ipaddress.IPv4Address),
    "ipv6": lambda text: "%" not in text and _reads(ipaddress.IPv6Address)(text),
}
