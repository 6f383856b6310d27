"""The way from what was read of an input to its answer: spans become values, values an object that fits the schema.

Whatever was read, the answer fits: a value that its leaf's schema refuses is not taken, a needed leaf without one has
the pairs' commonest, and an answer that still does not fit as a whole is the plan's `fallback`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from backend.domain.answers.json_schemas import normal_schema, validator
from backend.domain.extraction.converters import convert
from backend.domain.extraction.elements import elements_of, extent_of
from backend.domain.extraction.plan import ExtractionPlan, Way
from backend.domain.extraction.reads import ClassRead, FieldRead, SpanRead
from backend.domain.extraction.schema_leaves import ELEMENT, Leaf, leaves_of_schema
from backend.domain.extraction.sharing import with_shared

Accepts = Callable[[Any], bool]
Steps = Sequence[str | int]


@dataclass(slots=True)
class _Answer:
    """The answer under construction."""

    value: Any
    fields: list[FieldRead] = field(default_factory=list)

    def put(self, steps: Steps, value: Any, read: FieldRead | None) -> None:
        """Write a value at a path, in which the elements of lists have numbers."""
        if not steps:
            self.value = value
        else:
            here = self.value
            for step, following in pairwise(steps):
                here = _inside(here, step, following)
            _set(here, steps[-1], value)
        if read is not None:
            self.fields.append(read)


class Assembler:
    """Puts together answers of one schema by one plan."""

    def __init__(self, schema: Mapping[str, Any], plan: ExtractionPlan) -> None:
        self.plan = plan
        leaves, _ = leaves_of_schema(schema)
        by_path = {leaf.path: leaf for leaf in leaves}
        self.leaves: list[Leaf] = [by_path[rule.path] for rule in plan.rules]
        self._accepts: list[Accepts] = [_acceptance(leaf) for leaf in self.leaves]
        self._fits = validator(schema)
        self._schema = normal_schema(schema)

    def answer(self, text: str, spans: Sequence[SpanRead], classes: Sequence[ClassRead]) -> tuple[Any, list[FieldRead]]:
        """The answer, which fits the schema, and its fields."""
        made = _Answer(value=_skeleton(self._schema))
        groups = elements_of(self.plan, spans)
        for number, (rule, leaf) in enumerate(zip(self.plan.rules, self.leaves, strict=True)):
            own = [span for span in spans if span.rule == number]
            if rule.way in (Way.CLOSED, Way.MANY):
                self._put_classes(made, number, [one for one in classes if one.rule == number])
            elif rule.way is Way.EACH:
                for nth, group in enumerate(groups.get(leaf.list_path, [])):
                    self._put_classes(made, number, [one for one in group[0].classes if one.rule == number], nth=nth)
            elif leaf.is_listed:
                self._put_elements(made, number, text, own)
            elif leaf.list_path:
                elements = groups.get(leaf.list_path, [])
                columns = [[span for span in element if span.rule == number] for element in elements]
                if rule.shared is not None:
                    columns = with_shared(rule.shared, columns, [extent_of(element) for element in elements])
                for nth, members in enumerate(columns):
                    self._put_one(made, number, text, members, nth=nth)
            else:
                self._put_one(made, number, text, own)
        if self._fits(made.value):
            return self.plan.fallback, []
        return made.value, made.fields

    def _put_one(
        self, made: _Answer, number: int, text: str, spans: Sequence[SpanRead], *, nth: int | None = None
    ) -> None:
        rule, leaf = self.plan.rules[number], self.leaves[number]
        read = self._value(number, text, spans) if spans else None
        if read is None and not (rule.has_default or leaf.is_nullable or leaf.is_needed):
            return
        steps = [(nth or 0) if step == ELEMENT else step for step in leaf.steps]
        path = path_of(steps)
        if read is not None:
            self._put_span(made, number, steps, *read)
        elif rule.has_default:
            share = rule.n_right / rule.n if rule.n else 0.0
            made.put(steps, rule.default, FieldRead(rule=number, path=path, value=rule.default, confidence=share))
        elif leaf.is_nullable and (rule.writes_null or leaf.is_needed):
            made.put(steps, None, None)
        elif leaf.is_needed and rule.fallback is not None:
            made.put(steps, rule.fallback, FieldRead(rule=number, path=path, value=rule.fallback, confidence=0.0))

    def _put_span(self, made: _Answer, number: int, steps: Steps, value: Any, span: SpanRead) -> None:
        read = FieldRead(
            rule=number,
            path=path_of(steps),
            value=value,
            confidence=span.confidence,
            start=span.start,
            end=span.end,
        )
        made.put(steps, value, read)

    def _value(self, number: int, text: str, spans: Sequence[SpanRead]) -> tuple[Any, SpanRead] | None:
        """The value of the surest span that gives one, or of all spans joined."""
        rule, accepts = self.plan.rules[number], self._accepts[number]
        sure = [span for span in spans if not span.is_spare] or [span for span in spans if rule.is_always]
        if rule.separator is not None and len(sure) > 1:
            ordered = sorted(sure, key=lambda span: span.start)
            parts = [convert(rule.conversions, text[span.start : span.end], lambda _: True) for span in ordered]
            joined = rule.separator.join(str(part) for part in parts if part is not None)
            if joined and accepts(joined):
                least = min(span.confidence for span in ordered)
                whole = SpanRead(rule=number, start=ordered[0].start, end=ordered[-1].end, confidence=least)
                return joined, whole
        for span in sorted(sure, key=lambda span: (-span.confidence, span.start)):
            value = convert(rule.conversions, text[span.start : span.end], accepts)
            if value is not None:
                return value, span
        return None

    def _put_elements(self, made: _Answer, number: int, text: str, spans: Sequence[SpanRead]) -> None:
        """The elements of a list of scalars, in the order of the text."""
        rule, leaf, accepts = self.plan.rules[number], self.leaves[number], self._accepts[number]
        nth = 0
        for span in sorted(spans, key=lambda span: span.start):
            value = convert(rule.conversions, text[span.start : span.end], accepts)
            if value is not None and not span.is_spare:
                self._put_span(made, number, [*leaf.steps[:-1], nth], value, span)
                nth += 1

    def _put_classes(self, made: _Answer, number: int, reads: Sequence[ClassRead], *, nth: int = 0) -> None:
        """Write the class of a closed set, for an EACH rule of the element `nth`, or the members of a MANY rule."""
        rule, leaf = self.plan.rules[number], self.leaves[number]
        for place, read in enumerate(reads if rule.way is Way.MANY else reads[:1]):
            steps: list[str | int] = [nth if step == ELEMENT else step for step in leaf.steps]
            if rule.way is Way.MANY:
                steps[-1] = place
            if read.value is not None:
                own = FieldRead(rule=number, path=path_of(steps), value=read.value, confidence=read.confidence)
                made.put(steps, read.value, own)
            elif leaf.is_nullable and (rule.writes_null or leaf.is_needed):
                made.put(steps, None, None)


@lru_cache(maxsize=512)
def _validator_of(text: str) -> Callable[[Any], list[str]]:
    return validator(json.loads(text))


def _acceptance(leaf: Leaf) -> Accepts:
    fits = _validator_of(json.dumps(dict(leaf.schema), sort_keys=True))
    return lambda value: not fits(value)


def _skeleton(schema: Any) -> Any:
    """The containers that an answer must have."""
    if not isinstance(schema, Mapping) or schema.get("type") not in ("object", "array"):
        return None
    if schema["type"] == "array":
        return []
    fields = schema.get("properties", {})
    made = {name: _skeleton(fields[name]) for name in schema.get("required", ()) if name in fields}
    return {name: value for name, value in made.items() if value is not None}


def path_of(steps: Steps) -> str:
    return "".join(f"/{step}" for step in steps)


def _inside(here: Any, step: str | int, following: str | int) -> Any:
    """The container at a step of a list or object, made where it is not there yet."""
    empty: Any = [] if isinstance(following, int) else {}
    if isinstance(step, int):
        while len(here) <= step:
            here.append({})
        return here[step]
    return here.setdefault(field_name(step), empty)


def _set(here: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int):
        here.append(value)
    else:
        here[field_name(step)] = value


def field_name(step: str) -> str:
    """The name that a path's step spells (RFC 6901, and `~2` for a field that is called `*`)."""
    return "*" if step == "~2" else step.replace("~1", "/").replace("~0", "~")
