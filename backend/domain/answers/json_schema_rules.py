"""The JSON Schemas that a json task may have: draft 2020-12 without what cannot be bounded or decoded.

A schema is a stranger's program: it is judged here before anything compiles it, over its own tree and without following
a reference more than once. Refused are a remote or recursive `$ref`, references that unfold to more than MAX_UNFOLDED
parts, patterns that cannot be matched in linear time, and keywords that no decoder can be held to (`not`, `if`,
`allOf`, ...).

Enforced while an answer is decoded: type, enum, const, properties, required, additionalProperties, items, prefixItems,
minItems, maxItems, minLength, maxLength, pattern, format, the bounds of a number, multipleOf, anyOf. Checked only when
the answer is there (`VALIDATED_ONLY`): uniqueItems, minProperties, maxProperties; and of oneOf, that just one branch
fits.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any
from urllib.parse import unquote

from backend.domain.errors import Problem
from backend.domain.patterns.decoding import why_not_decodable
from backend.domain.patterns.matching import UnsafePattern, compile_pattern, takes_too_long_to_read
from backend.domain.pointers import join, kind_of, suggestion

MAX_CHARS = 65_536
MAX_VALUES = 5_000
MAX_DEPTH = 24
MAX_UNFOLDED = 5_000  # parts once every reference is written out
MAX_UNFOLDED_DEPTH = 48
MAX_UNFOLDED_CHARS = 4 * MAX_CHARS  # of names, constants and descriptions
MAX_PROBLEMS = 50
MAX_PROPERTIES = 200
MAX_ITEMS = 1_000
MAX_STRING = 20_000
MAX_PATTERNS = 64  # different ones: to read one takes up to 25 ms
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
FORMATS = ("date", "date-time", "time", "email", "uuid", "ipv4", "ipv6")
ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")
)
VALIDATED_ONLY = frozenset(("uniqueItems", "minProperties", "maxProperties"))
DEFINITIONS = ("$defs", "definitions")
_ROOT_ONLY = frozenset(("$schema", *DEFINITIONS))
_WRITTEN_OUT = ("enum", "const", "description")  # wherever a reference leads to them
_ALONE = ("$ref", "anyOf", "oneOf")
_TOO_DEEP = f"its references unfold to more than {MAX_UNFOLDED_DEPTH} levels; flatten it"
_REFUSED = {
    "allOf": "write the joined schema out",
    "not": "say what is allowed instead",
    "if": "use anyOf with one branch for each case",
    "then": "use anyOf with one branch for each case",
    "else": "use anyOf with one branch for each case",
    "$id": "leave it out",
    "$anchor": "refer to #/$defs/NAME",
    "$dynamicRef": "refer to #/$defs/NAME with $ref",
    "$dynamicAnchor": "refer to #/$defs/NAME with $ref",
    "patternProperties": "name the properties, or use additionalProperties",
    "propertyNames": "name the properties",
    "dependentRequired": "use anyOf with one branch for each case",
    "dependentSchemas": "use anyOf with one branch for each case",
    "contains": "describe each item with items",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items",
}


def check_schema(schema: object, *, at: str = "") -> list[Problem]:
    """Return what is wrong with the schema of a task's answer, each at its JSON pointer below `at`; nothing when it can
    be used. Costs time linear in the schema, whatever it holds."""
    if not isinstance(schema, dict):
        return [_problem(at, f"a schema is an object; this is {kind_of(schema)}", "not_a_schema")]
    if fault := _too_large(schema):
        return [_problem(at, fault, "schema_too_large")]
    problems = list(islice(chain(_schema(schema, at, is_root=True), _definitions(schema, at)), MAX_PROBLEMS))
    if not problems:
        problems = list(_references(schema, at))
    if not problems and not _is_container(schema, schema):
        message = 'an answer is an object or a list: give the schema "type": "object" and "properties"'
        problems = [_problem(at, message, "not_a_schema")]
    return problems


def _problem(pointer: str, message: str, code: str) -> Problem:
    return Problem(pointer=pointer, message=message, code=code)


def _too_large(schema: Mapping[str, Any]) -> str | None:
    """Walks without recursion: a deep schema must not exhaust the stack of the one who refuses it."""
    stack: list[tuple[object, int]] = [(schema, 0)]
    n_values = 0
    patterns: set[str] = set()
    while stack:
        value, depth = stack.pop()
        n_values += 1
        if depth > MAX_DEPTH:
            return f"the schema is nested more than {MAX_DEPTH} deep; flatten it"
        if n_values > MAX_VALUES:
            return f"the schema holds more than {MAX_VALUES:,} values; make it smaller"
        if isinstance(value, dict):
            stack.extend((item, depth + 1) for item in value.values())
            patterns |= {value["pattern"]} if isinstance(value.get("pattern"), str) else set()
        elif isinstance(value, list):
            stack.extend((item, depth + 1) for item in value)
    if len(patterns) > MAX_PATTERNS:
        return f"the schema has {len(patterns):,} different patterns; at most {MAX_PATTERNS} are allowed"
    if len(json.dumps(schema, ensure_ascii=False, default=str)) > MAX_CHARS:
        return f"the schema has more than {MAX_CHARS:,} characters; make it smaller"
    if takes_too_long_to_read(patterns):
        return (
            "the patterns of the schema together take too long to read; take fewer or shorter ones, with fewer letters "
            "and ranges beyond ASCII"
        )
    return None


def _schema(schema: object, at: str, *, is_root: bool = False) -> Iterator[Problem]:
    """The problems of one schema and of those inside it, references left alone."""
    if isinstance(schema, bool):
        yield _problem(at, "true and false are no schema here; say what stands in this place", "not_a_schema")
        return
    if not isinstance(schema, dict):
        yield _problem(at, f"a schema is an object; this is {kind_of(schema)}", "not_a_schema")
        return
    yield from _alone(schema, at)
    for key, value in schema.items():
        here = join(at, key)
        if key in ANNOTATIONS or (is_root and key in _ROOT_ONLY):
            continue
        if key in _ROOT_ONLY:
            yield _problem(here, f'"{key}" stands at the root of the schema only', "unsupported_keyword")
        elif key in _REFUSED:
            yield _problem(here, f'"{key}" cannot be decoded to; {_REFUSED[key]}', "unsupported_keyword")
        elif key not in _RULES:
            words = suggestion(key, sorted(_RULES))
            yield _problem(here, f'unknown keyword "{key[:60]}"; {words}', "unsupported_keyword")
        else:
            yield from _RULES[key](value, here)
    yield from _contradictions(schema, at)


def _alone(schema: Mapping[str, Any], at: str) -> Iterator[Problem]:
    for key in _ALONE:
        others = sorted(set(schema) - ANNOTATIONS - _ROOT_ONLY - {key})
        if key in schema and others:
            message = f'"{key}" stands alone, but for a title or a description; move "{others[0][:60]}" into it'
            yield _problem(join(at, key), message, "unsupported_keyword")
            return


def _contradictions(schema: Mapping[str, Any], at: str) -> Iterator[Problem]:
    pairs = (
        ("minItems", "maxItems"),
        ("minLength", "maxLength"),
        ("minProperties", "maxProperties"),
        ("minimum", "maximum"),
    )
    for low, high in pairs:
        if _is_number(schema.get(low)) and _is_number(schema.get(high)) and schema[low] > schema[high]:
            message = f"{low} {schema[low]} is more than {high} {schema[high]}; no answer can pass"
            yield _problem(join(at, low), message, "out_of_range")
    if "pattern" in schema and "format" in schema:
        yield _problem(join(at, "format"), "pattern and format do not stand together; keep one", "unsupported_keyword")
    names, required = schema.get("properties"), schema.get("required")
    is_closed = (
        not isinstance(schema.get("additionalProperties"), dict) and schema.get("additionalProperties") is not True
    )
    if isinstance(required, list) and is_closed:
        known = names if isinstance(names, dict) else {}
        for i, name in enumerate(required):
            if isinstance(name, str) and name not in known:
                message = f'"{name[:60]}" is required and not among the properties; {suggestion(name, list(known))}'
                yield _problem(join(join(at, "required"), i), message, "unknown_field")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _type(value: object, at: str) -> Iterator[Problem]:
    names = value if isinstance(value, list) else [value]
    if not names or len(set(map(str, names))) < len(names):
        yield _problem(at, "name each type once", "not_a_schema")
    for name in names:
        if name not in TYPES:
            yield _problem(at, f"{str(name)[:40]!r} is no type; known are {', '.join(TYPES)}", "not_a_schema")


def _properties(value: object, at: str) -> Iterator[Problem]:
    if not isinstance(value, dict) or len(value) > MAX_PROPERTIES:
        yield _problem(at, f"must be an object of at most {MAX_PROPERTIES} schemas", "not_a_schema")
        return
    for name, part in value.items():
        if not name or len(name) > 100 or any(ord(char) < 32 for char in name):
            yield _problem(join(at, name), "a field's name has 1 to 100 printable characters", "not_a_schema")
        yield from _schema(part, join(at, name))


def _names(value: object, at: str) -> Iterator[Problem]:
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    if not is_list or len(set(value)) < len(value):  # type: ignore[call-overload,arg-type]
        yield _problem(at, "must be a list of different names", "not_a_schema")


def _schema_or_flag(value: object, at: str) -> Iterator[Problem]:
    if not isinstance(value, bool):
        yield from _schema(value, at)


def _schemas(value: object, at: str) -> Iterator[Problem]:
    if not isinstance(value, list) or not 1 <= len(value) <= 50:
        yield _problem(at, "must be a list of 1 to 50 schemas", "not_a_schema")
        return
    for i, part in enumerate(value):
        yield from _schema(part, join(at, i))


def _enum(value: object, at: str) -> Iterator[Problem]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_ITEMS:
        yield _problem(at, f"must be a list of 1 to {MAX_ITEMS:,} values", "not_a_schema")


def _const(value: object, at: str) -> Iterator[Problem]:
    yield from ()


def _pattern(value: object, at: str) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield _problem(at, f"must be text; this is {kind_of(value)}", "not_a_schema")
        return
    try:
        compile_pattern(value)
    except UnsafePattern as fault:
        yield _problem(at, str(fault), "bad_pattern")
        return
    if reason := why_not_decodable(value):
        yield _problem(at, reason, "bad_pattern")


def _format(value: object, at: str) -> Iterator[Problem]:
    if value not in FORMATS:
        message = f"{str(value)[:40]!r} is no format here; known are {', '.join(FORMATS)}, or use a pattern"
        yield _problem(at, message, "unsupported_keyword")


def _count(most: int) -> Callable[[object, str], Iterator[Problem]]:
    def rule(value: object, at: str) -> Iterator[Problem]:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            yield _problem(at, f"must be a whole number from 0 to {most:,}", "out_of_range")

    return rule


def _bound(value: object, at: str) -> Iterator[Problem]:
    if not _is_number(value) or not abs(value) <= 2**53:  # type: ignore[arg-type]
        yield _problem(at, "must be a number within 2 to the 53rd", "out_of_range")


def _step(value: object, at: str) -> Iterator[Problem]:
    if not _is_number(value) or not 1e-6 <= value <= 1e9:  # type: ignore[operator]
        yield _problem(at, "must be a number from 0.000001 to 1,000,000,000", "out_of_range")


def _flag(value: object, at: str) -> Iterator[Problem]:
    if not isinstance(value, bool):
        yield _problem(at, f"must be true or false; this is {kind_of(value)}", "not_a_schema")


def _ref(value: object, at: str) -> Iterator[Problem]:
    if not isinstance(value, str) or reference(value) is None:
        yield _problem(at, "refers to #/$defs/NAME of this schema only; nothing is fetched", "unsupported_keyword")


_RULES: dict[str, Callable[[object, str], Iterator[Problem]]] = {
    "type": _type,
    "properties": _properties,
    "required": _names,
    "additionalProperties": _schema_or_flag,
    "items": _schema_or_flag,
    "prefixItems": _schemas,
    "anyOf": _schemas,
    "oneOf": _schemas,
    "enum": _enum,
    "const": _const,
    "pattern": _pattern,
    "format": _format,
    "minItems": _count(MAX_ITEMS),
    "maxItems": _count(MAX_ITEMS),
    "minLength": _count(MAX_STRING),
    "maxLength": _count(MAX_STRING),
    "minProperties": _count(MAX_PROPERTIES),
    "maxProperties": _count(MAX_PROPERTIES),
    "minimum": _bound,
    "maximum": _bound,
    "exclusiveMinimum": _bound,
    "exclusiveMaximum": _bound,
    "multipleOf": _step,
    "uniqueItems": _flag,
    "$ref": _ref,
}


def _definitions(schema: Mapping[str, Any], at: str) -> Iterator[Problem]:
    for key in DEFINITIONS:
        if key in schema:
            yield from _properties(schema[key], join(at, key))
    dialect = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    if not isinstance(dialect, str) or "json-schema.org/" not in dialect:
        yield _problem(join(at, "$schema"), "the dialect is draft 2020-12; leave it out", "unsupported_keyword")


def reference(ref: str) -> tuple[str, str] | None:
    """Return where `#/$defs/NAME` (or `#/definitions/NAME`) points: the place and the name; None for any other
    reference."""
    parts = ref.split("/")
    if len(parts) != 3 or parts[0] != "#" or parts[1] not in DEFINITIONS:
        return None
    return parts[1], unquote(parts[2]).replace("~1", "/").replace("~0", "~")


def _references(schema: Mapping[str, Any], at: str) -> Iterator[Problem]:
    """Dangling, circular and exploding references."""
    try:
        unfolding = _Unfolding(schema)
        for place in DEFINITIONS:
            for name in schema.get(place, {}):
                unfolding.of_definition((place, name), 0)
        whole = unfolding.of(schema, 0)
        if whole.n_parts > MAX_UNFOLDED:
            message = f"its references unfold to more than {MAX_UNFOLDED:,} parts; make it smaller"
            yield _problem(at, message, "schema_too_large")
        elif whole.n_chars > MAX_UNFOLDED_CHARS:
            message = (
                f"its references unfold to more than {MAX_UNFOLDED_CHARS:,} characters of names, constants and "
                "descriptions; make what is referred to smaller"
            )
            yield _problem(at, message, "schema_too_large")
    except _BadReference as fault:
        yield _problem(at, fault.message, fault.code)


@dataclass(frozen=True, slots=True)
class _Extent:
    """The size of a part with its references written out."""

    n_parts: int = 0
    height: int = 0
    n_chars: int = 0


def _around(inside: Sequence[_Extent], n_chars: int) -> _Extent:
    return _Extent(
        n_parts=1 + sum(one.n_parts for one in inside),
        height=1 + max((one.height for one in inside), default=0),
        n_chars=n_chars + sum(one.n_chars for one in inside),
    )


class _Unfolding:
    """The size of a schema with its references written out; each definition is measured once."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._known: dict[tuple[str, str], _Extent] = {}
        self._open: set[tuple[str, str]] = set()

    def of(self, part: object, depth: int) -> _Extent:
        """The height is counted below this part."""
        if depth > MAX_UNFOLDED_DEPTH:
            raise _BadReference(_TOO_DEEP, "schema_too_large")
        n_chars = 0
        if isinstance(part, list):
            inside = [self.of(item, depth + 1) for item in part]
        elif not isinstance(part, dict):
            return _Extent(n_chars=len(part) if isinstance(part, str) else 0)
        elif isinstance(part.get("$ref"), str):
            inside = [self.of_definition(self._place(part["$ref"]), depth + 1)]
        else:
            names = [name for name in part if name not in ANNOTATIONS | {"enum", "const", *DEFINITIONS}]
            inside = [(self._fields if name == "properties" else self.of)(part[name], depth + 1) for name in names]
            n_chars = sum(map(len, names)) + sum(_n_chars(part[key]) for key in _WRITTEN_OUT if key in part)
        return _around(inside, n_chars)

    def _fields(self, fields: Mapping[str, Any], depth: int) -> _Extent:
        """Add up `properties`, where a field may be called `title` or `enum` as well."""
        return _around([self.of(field, depth + 1) for field in fields.values()], sum(map(len, fields)))

    def of_definition(self, place: tuple[str, str], depth: int) -> _Extent:
        if place in self._open:
            message = f"#/{place[0]}/{place[1][:60]} refers to itself; write as many levels out as are needed"
            raise _BadReference(message, "recursive_schema")
        if place not in self._known:
            self._open.add(place)
            self._known[place] = self.of(self._schema[place[0]][place[1]], depth)
            self._open.remove(place)
        if depth + self._known[place].height > MAX_UNFOLDED_DEPTH:
            raise _BadReference(_TOO_DEEP, "schema_too_large")
        return self._known[place]

    def _place(self, ref: str) -> tuple[str, str]:
        place = reference(ref)
        if place is None or place[1] not in self._schema.get(place[0], {}):
            raise _BadReference(f"{ref[:80]} is not in this schema", "unsupported_keyword")
        return place


def _n_chars(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))


class _BadReference(ValueError):
    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message, self.code = message, code


def _is_container(part: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Return whether every answer is an object or a list. References have been followed to their ends before."""
    if isinstance(part.get("$ref"), str):
        place = reference(part["$ref"])
        return place is not None and _is_container(root[place[0]][place[1]], root)
    branches = part.get("anyOf") or part.get("oneOf")
    if branches:
        return all(_is_container(branch, root) for branch in branches)
    return part.get("type") in ("object", "array")
