"""The comparison of two schemas: is every answer by one an answer by the other, what a task answers with by what a
caller asks for?

The comparison proves what it can and refuses the rest: `inclusion_fault` gives None only where no value fits the inner
schema and not the outer one. Both come in vetted by `check_schema`. Their rule of kolm's own holds here, too: an object
that names its properties and says nothing of others has no others.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from backend.domain.answers.json_schema_rules import TYPES
from backend.domain.answers.json_schemas import normal_schema
from backend.domain.answers.json_validation import STEPS_A_LOOK, BudgetExceeded, Judge, ValidationBudget, judge_of
from backend.domain.answers.same_form import is_same_schema
from backend.domain.pointers import join

MAX_STEPS = 3_000_000
STEPS_A_CHAR = 10  # of two schemas that are compared as a whole
_ANYTHING: dict[str, Any] = {}
_FEWEST = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_MOST = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_SAME = ("pattern", "format", "uniqueItems")
_OF_TYPE = {  # the keywords that say something of a type
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems", "uniqueItems"),
    "object": ("minProperties", "maxProperties"),
}


def inclusion_fault(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> str | None:
    """Return where and why a value of `inner` may not fit `outer`; None where each fits.

    >>> city = {"type": "object", "properties": {"city": {"enum": ["Bern", "Oslo"]}}, "required": ["city"]}
    >>> inclusion_fault(city, city | {"properties": {"city": {"type": "string"}}}) is None
    True
    >>> inclusion_fault(city, city | {"properties": {"city": {"type": "string", "maxLength": 3}}})
    '/city: a value of the enum does not fit'
    """
    return _fault_of_texts(json.dumps(inner, ensure_ascii=False), json.dumps(outer, ensure_ascii=False))


@lru_cache(maxsize=64)
def _fault_of_texts(inner: str, outer: str) -> str | None:
    """A caller asks with one schema again and again."""
    own, asked = normal_schema(json.loads(inner)), normal_schema(json.loads(outer))
    if is_same_schema(own, asked):
        return None
    try:
        fault = next(_Comparison().faults(own, asked, ""), None)
    except BudgetExceeded:
        return "the schemas take too long to be compared"
    return None if fault is None else f"{fault[0][:100] or 'the answer'}: {fault[1]}"


class _Comparison:
    """One comparison of two normal schemas, which pays for each pair of parts that it looks at."""

    def __init__(self) -> None:
        self._budget = ValidationBudget(MAX_STEPS)
        self._judges: dict[int, tuple[Mapping[str, Any], Judge]] = {}  # of parts of the outer schema, by identity

    def faults(self, inner: Any, outer: Any, at: str) -> Iterator[tuple[str, str]]:
        self._budget.spend(STEPS_A_LOOK)
        inner, outer = _written_out(inner), _written_out(outer)
        if not outer:
            return
        if branches := inner.get("anyOf") or inner.get("oneOf"):
            for branch in branches:
                yield from self.faults(branch, outer, at)
        elif "enum" in inner or "const" in inner:
            yield from self._constants(inner.get("enum", [inner.get("const")]), outer, at)
        elif "oneOf" in outer:
            if not self._is_same(inner, outer):
                yield at, "it cannot be shown that just one branch of oneOf fits"
        elif "anyOf" in outer:
            yield from self._branches(inner, outer["anyOf"], at)
        else:
            for kind in _types(inner):
                yield from self._of_type(kind, inner, outer, at)

    def _is_same(self, inner: Mapping[str, Any], outer: Mapping[str, Any]) -> bool:
        n_chars = len(json.dumps(inner)) + len(json.dumps(outer))
        self._budget.spend(STEPS_A_CHAR * n_chars)
        return is_same_schema(inner, outer)

    def _fits(self, inner: Any, outer: Any) -> bool:
        return next(self.faults(inner, outer, ""), None) is None

    def _constants(self, values: list[Any], outer: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
        judge = self._judge(outer)
        if not all(judge.takes(value, self._budget) for value in values):
            yield at, "a value of the enum does not fit"

    def _judge(self, outer: Mapping[str, Any]) -> Judge:
        """Each part's is made once, however many constants are held to it."""
        if id(outer) not in self._judges:
            self._judges[id(outer)] = outer, judge_of(outer)
        return self._judges[id(outer)][1]

    def _branches(self, inner: Mapping[str, Any], branches: list[Any], at: str) -> Iterator[tuple[str, str]]:
        """A part of several types may be divided among the branches."""
        for kind in _types(inner):
            one = {**inner, "type": kind}
            if not any(self._fits(one, branch) for branch in branches):
                yield at, f"{_article(kind)} of the answers fits no branch of anyOf"

    def _of_type(
        self, kind: str, inner: Mapping[str, Any], outer: Mapping[str, Any], at: str
    ) -> Iterator[tuple[str, str]]:
        if "enum" in outer or "const" in outer:
            yield from self._all_of_few(kind, outer, at)
            return
        if kind not in _types(outer):
            yield at, f"the answers may have {_article(kind)} here"
            return
        yield from ((at, why) for why in _limits("number" if kind == "integer" else kind, inner, outer))
        if kind == "object":
            yield from self._objects(inner, outer, at)
        elif kind == "array":
            yield from self._arrays(inner, outer, at)

    def _all_of_few(self, kind: str, outer: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
        """Only two types have so few values that an enum can list them all."""
        few: dict[str, list[Any]] = {"null": [None], "boolean": [True, False]}
        if kind not in few:
            yield at, "the answers may have values that the enum does not list"
        else:
            yield from self._constants(few[kind], outer, at)

    def _objects(self, inner: Mapping[str, Any], outer: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
        fields, wanted = inner.get("properties", {}), outer.get("properties", {})
        for name in outer.get("required", ()):
            if name not in inner.get("required", ()):
                yield join(at, name), "the field is required and the answers may lack it"
        others = outer.get("additionalProperties", True)
        for name, part in fields.items():
            if name in wanted or others is not False:
                yield from self.faults(part, wanted.get(name, others), join(at, name))
            else:
                yield join(at, name), "the answers have this field, which was not asked for"
        extra = inner.get("additionalProperties", True)
        if extra is False:
            return
        if others is False:
            yield at, "the answers may have fields of any name"
        for place in [others, *(wanted[name] for name in wanted if name not in fields)]:
            yield from self.faults(extra, place, join(at, "*"))

    def _arrays(self, inner: Mapping[str, Any], outer: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
        here = join(at, "*")
        if "prefixItems" in outer:
            if not self._is_same(inner, outer):
                yield here, "a list with prefixItems must be asked for in the task's own words"
            return
        wanted = outer.get("items", True)
        if wanted is False:
            yield here, "no items were asked for"
            return
        for part in inner.get("prefixItems", ()):
            yield from self.faults(part, wanted, here)
        if inner.get("items", True) is not False:
            yield from self.faults(inner.get("items", True), wanted, here)


def _written_out(part: Any) -> Mapping[str, Any]:
    """`true` as the schema that takes everything; `false` as one that takes nothing."""
    if part is True:
        return _ANYTHING
    return {"enum": []} if part is False else part


def _types(part: Mapping[str, Any]) -> list[str]:
    kinds = part.get("type", [kind for kind in TYPES if kind != "integer"])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return [*kinds, "integer"] if "number" in kinds and "integer" not in kinds else list(kinds)


def _limits(kind: str, inner: Mapping[str, Any], outer: Mapping[str, Any]) -> Iterator[str]:
    """Compare the keywords of a type that bound its values."""
    for name in _OF_TYPE.get(kind, ()):
        if name not in outer:
            continue
        own, wanted = _own_limit(name, inner), outer[name]
        if name in _SAME:
            is_fine = not wanted if name == "uniqueItems" and own is None else own == wanted
        elif name == "multipleOf":
            is_fine = own == wanted or (inner.get("type") == "integer" and wanted == 1)
        elif name in _FEWEST:
            is_fine = own is not None and own >= wanted
        else:
            is_fine = own is not None and own <= wanted
        if not is_fine:
            yield f"{name} {wanted!r} does not hold for all answers"


def _own_limit(name: str, inner: Mapping[str, Any]) -> Any:
    """The bound that the inner schema itself sets, also by other words."""
    if name == "minProperties":
        return max(inner.get(name, 0), len(inner.get("required", ())))
    if name == "maxProperties" and name not in inner and inner.get("additionalProperties") is False:
        return len(inner.get("properties", {}))
    if name == "maxItems" and name not in inner and inner.get("items") is False:
        return len(inner.get("prefixItems", ()))
    if name in ("minimum", "maximum") and name not in inner:
        return inner.get(f"exclusive{name.capitalize()}")
    if name in ("minLength", "minItems"):
        return inner.get(name, 0)
    return inner.get(name)


def _article(kind: str) -> str:
    return {"null": "null", "array": "a list", "object": "an object", "integer": "a whole number"}.get(
        kind, f"a {kind}"
    )
