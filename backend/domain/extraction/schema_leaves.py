"""The leaves of a json task's schema: the scalars that an answer is made of, by their paths.

A path has a step for each field and `*` for the elements of a list, as the fields of `json_values` have. An extraction
knows objects, lists of scalars and lists of objects; what else a schema may hold is an `Unreadable` part.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.answers.json_values import field_token

SCALARS = frozenset({"string", "integer", "number", "boolean"})
ELEMENT = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """`steps` are the names on the way, `*` for a list's elements. `choices` are the values of an enum or const, None
    where any will do. `is_needed`: every object that could hold it must."""

    steps: tuple[str, ...]
    types: frozenset[str]
    choices: tuple[Any, ...] | None
    is_nullable: bool
    is_needed: bool
    schema: Mapping[str, Any]

    @property
    def path(self) -> str:
        return "".join(f"/{step}" for step in self.steps)

    @property
    def is_listed(self) -> bool:
        """Say whether it is an element of a list of scalars."""
        return self.steps[-1:] == (ELEMENT,)

    @property
    def list_path(self) -> str:
        """The path of the elements of the list of objects that it lies in; "" where it lies in none."""
        if self.is_listed or ELEMENT not in self.steps:
            return ""
        return "".join(f"/{step}" for step in self.steps[: self.steps.index(ELEMENT) + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A part of a schema that no extraction can fill."""

    path: str
    why: str


def leaves_of_schema(schema: Mapping[str, Any]) -> tuple[list[Leaf], list[Unreadable]]:
    """The leaves in the order in which an answer spells them, and the parts that are none.

    >>> leaves, _ = leaves_of_schema({"type": "object", "properties": {
    ...     "tags": {"type": "array", "items": {"type": "string"}}, "total": {"type": ["number", "null"]}}})
    >>> [(leaf.path, leaf.is_nullable) for leaf in leaves]
    [('/tags/*', False), ('/total', True)]
    """
    leaves: list[Leaf] = []
    unreadable: list[Unreadable] = []
    for part in _parts(normal_schema(schema), (), is_needed=True):
        (leaves if isinstance(part, Leaf) else unreadable).append(part)  # type: ignore[arg-type]
    return leaves, unreadable


def _parts(schema: Any, steps: tuple[str, ...], *, is_needed: bool) -> Iterator[Leaf | Unreadable]:
    here = "".join(f"/{step}" for step in steps)
    if not isinstance(schema, Mapping):
        yield Unreadable(path=here, why="it may hold anything")
        return
    schema, is_nullable = _without_null(schema)
    types = _types(schema)
    if types == {"object"}:
        yield from _fields(schema, steps, is_needed=is_needed and not is_nullable)
    elif types == {"array"}:
        yield from _elements(schema, steps, here)
    elif types and types <= SCALARS:
        yield Leaf(
            steps=steps,
            types=frozenset(types),
            choices=_choices(schema),
            is_nullable=is_nullable,
            is_needed=is_needed,
            schema=schema,
        )
    else:
        yield Unreadable(path=here, why="it may hold values of several shapes")


def _fields(schema: Mapping[str, Any], steps: tuple[str, ...], *, is_needed: bool) -> Iterator[Leaf | Unreadable]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        yield from _parts(field, (*steps, field_token(name)), is_needed=is_needed and name in required)


def _elements(schema: Mapping[str, Any], steps: tuple[str, ...], here: str) -> Iterator[Leaf | Unreadable]:
    if schema.get("prefixItems"):
        yield Unreadable(path=here, why="it is a list whose places have meanings of their own")
    elif ELEMENT in steps:
        yield Unreadable(path=here, why="it is a list inside of a list")
    else:
        yield from _parts(schema.get("items", True), (*steps, ELEMENT), is_needed=True)


def _without_null(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The schema of what is not null, and whether null is allowed beside it."""
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        others = [one for one in branches if not (isinstance(one, Mapping) and one.get("type") == "null")]
        if len(others) == 1 and isinstance(others[0], Mapping):
            inner, is_nullable = _without_null(others[0])
            return inner, is_nullable or len(branches) > 1
        return schema, False
    kinds, values = schema.get("type"), schema.get("enum")
    is_typed = kinds == "null" or (isinstance(kinds, list) and "null" in kinds)
    is_listed = isinstance(values, list) and None in values
    if not is_typed and not is_listed:
        return schema, False
    kept = dict(schema)
    if isinstance(kinds, list):
        kept["type"] = [kind for kind in kinds if kind != "null"]
    if isinstance(values, list):
        kept["enum"] = [value for value in values if value is not None]
    return kept, (is_typed or kinds is None) and (is_listed or values is None)


def _types(schema: Mapping[str, Any]) -> set[str]:
    kinds = schema.get("type")
    if kinds is not None:
        return {kinds} if isinstance(kinds, str) else set(kinds)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values:
        return {_type_of(value) for value in values}
    return {"object"} if "properties" in schema else {"array"} if "items" in schema else set()


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    return "object" if isinstance(value, dict) else "array"


def _choices(schema: Mapping[str, Any]) -> tuple[Any, ...] | None:
    if "const" in schema:
        return (schema["const"],)
    if isinstance(schema.get("enum"), list):
        return tuple(schema["enum"])
    return (False, True) if _types(schema) == {"boolean"} else None
