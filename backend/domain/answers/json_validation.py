"""The validation of a JSON value against a schema in its normal form, and what each look at it costs.

Of a stranger's schema and a stranger's answers each can be lawful, and both together take hours: 1,900 values against a
thousand constants each, fifty branches inside fifty branches. So every look is paid for from a `ValidationBudget`
before it is taken. A step is a tenth of a microsecond of CPU or less; what depends on a size (a pattern, a text, a list
of required names) is priced by that size. Branches are tried until the first fault, and no fault quotes more than a few
words.

A value fits where draft 2020-12 says so (`test_json_schemas` compares it with the standard's own validator).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from backend.domain.answers.json_formats import FORMATS
from backend.domain.patterns.matching import MAX_MATCHED_CHARS, Pattern, compile_pattern, reading_steps
from backend.domain.pointers import kind_of

STEPS_A_LOOK = 16  # at one value by one schema
STEPS_A_RULE = 5
STEPS_A_FIELD = 3
STEPS_A_VALUE = 15  # inside a list or a constant that is compared as a whole
STEPS_A_MATCH = 120
INSTRUCTIONS_A_STEP = 20  # of a pattern's program, for each byte: 5 ns each where a text is made for it
STEPS_A_FORMAT = 200
STEPS_A_FRACTION = 200
CHARS_A_STEP = 20  # of a text that is read once
_QUOTED = 80  # characters of a text or of a name in a fault

Place = tuple[Any, str | int] | None  # (the place around, a name or an index); None for the whole answer
Fault = tuple[Place, str]


class BudgetExceeded(Exception):
    """The budget is spent."""


class ValidationBudget:
    """The steps that checks may still take, in steps of which some ten million take a second."""

    def __init__(self, steps_left: int) -> None:
        self.left = steps_left
        self._patterns: dict[str, Pattern] = {}

    def spend(self, n_steps: int) -> None:
        self.left -= n_steps
        if self.left < 0:
            raise BudgetExceeded("It takes too long to be checked against the schema.")

    def pattern(self, source: str) -> Pattern:
        """Each is paid for once, and read once however many others there are."""
        if source not in self._patterns:
            self.spend(reading_steps(source))  # it may be kept no longer
            self._patterns[source] = compile_pattern(source)
        return self._patterns[source]


Rule = Callable[[Any, Place, ValidationBudget], Iterable[Fault]]


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """One schema, read once. `price` is what a look at a value costs before it is known what the value is."""

    rules: tuple[Rule, ...]
    price: int

    def faults(self, value: Any, at: Place, budget: ValidationBudget) -> Iterator[Fault]:
        """Return what is wrong, one at a time. Raises BudgetExceeded."""
        budget.spend(self.price)
        for rule in self.rules:
            yield from rule(value, at, budget)

    def takes(self, value: Any, budget: ValidationBudget) -> bool:
        return next(self.faults(value, None, budget), None) is None


def judge_of(schema: Mapping[str, Any]) -> Judge:
    """The judge of a schema that `check_schema` has vetted and `normal_schema` has written out."""
    rules = [_MADE[key](value, schema) for key, value in schema.items() if key in _MADE]
    return Judge(tuple(rules), STEPS_A_LOOK + STEPS_A_RULE * len(rules))


_NOTHING: tuple[Fault, ...] = ()


def _show(value: object) -> str:
    """Show a value in a few words, whatever its size."""
    if isinstance(value, str):
        return repr(value[:_QUOTED])
    return kind_of(value) if value is None or isinstance(value, bool | dict | list) else repr(value)


def _type(names: Any, _schema: Mapping[str, Any]) -> Rule:
    wanted = frozenset(names if isinstance(names, list) else [names])
    words = ", ".join(map(repr, sorted(wanted)))

    def rule(value: Any, at: Place, _budget: ValidationBudget) -> Iterable[Fault]:
        return _NOTHING if not wanted.isdisjoint(_types(value)) else [(at, f"{_show(value)} is not of type {words}")]

    return rule


_TYPES: dict[type, tuple[str, ...]] = {
    dict: ("object",),
    list: ("array",),
    str: ("string",),
    bool: ("boolean",),
    type(None): ("null",),
    int: ("integer", "number"),
}


def _types(value: object) -> tuple[str, ...]:
    if isinstance(value, float):
        return ("integer", "number") if value.is_integer() else ("number",)
    return _TYPES[type(value)]


def _enum(values: Any, _schema: Mapping[str, Any]) -> Rule:
    keys = frozenset(_key(value, None) for value in values)
    has_containers = any(isinstance(value, dict | list) for value in values)
    words = "is not one of the values that enum allows"

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        is_fine = (has_containers or not isinstance(value, dict | list)) and _key(value, budget) in keys
        return _NOTHING if is_fine else [(at, f"{_show(value)} {words}")]

    return rule


def _const(constant: Any, _schema: Mapping[str, Any]) -> Rule:
    key, is_container = _key(constant, None), isinstance(constant, dict | list)
    words = f"{_show(constant)} was expected"

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        is_fine = (is_container or not isinstance(value, dict | list)) and _key(value, budget) == key
        return _NOTHING if is_fine else [(at, words)]

    return rule


_TEXT = json.JSONEncoder(sort_keys=True).encode


def _key(value: object, budget: ValidationBudget | None) -> str:
    """A text that two values share when JSON Schema calls them equal. Texts, for no stranger can make their hashes
    meet, as he could those of numbers."""
    # the encoder writes an integer so too, and makes itself anew for each
    text = repr(value) if type(value) is int else _TEXT(_whole(value, budget))
    if budget is not None:
        budget.spend(STEPS_A_VALUE + len(text) // CHARS_A_STEP)
    return text


def _whole(value: object, budget: ValidationBudget | None) -> object:
    """1.0 and 1 are one number in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict | list):
        if budget is not None:
            budget.spend(STEPS_A_VALUE * (1 + len(value)))
        if isinstance(value, list):
            return [_whole(item, budget) for item in value]
        return {name: _whole(item, budget) for name, item in value.items()}
    return value


def _unique(is_asked: Any, _schema: Mapping[str, Any]) -> Rule:
    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        if not is_asked or not isinstance(value, list):
            return _NOTHING
        n_different = len({_key(item, budget) for item in value})
        return _NOTHING if n_different == len(value) else [(at, "holds one value twice")]

    return rule


def _properties(fields: Any, _schema: Mapping[str, Any]) -> Rule:
    judges = {name: judge_of(field) for name, field in fields.items()}

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        return inside(value, at, budget) if isinstance(value, dict) and value else _NOTHING

    def inside(value: Any, at: Place, budget: ValidationBudget) -> Iterator[Fault]:
        budget.spend(STEPS_A_FIELD * len(value))
        for name, item in value.items():
            if name in judges:
                yield from judges[name].faults(item, (at, name), budget)

    return rule


def _additional(others: Any, schema: Mapping[str, Any]) -> Rule:
    fields = schema.get("properties", {})
    judge = judge_of(others) if isinstance(others, Mapping) else None

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        if others is True or not isinstance(value, dict):
            return _NOTHING
        budget.spend(STEPS_A_FIELD * len(value))
        extra = [name for name in value if name not in fields]
        if judge is not None:
            return inside(judge, value, extra, at, budget)
        return [(at, _describe_unexpected(extra))] if extra else _NOTHING

    def inside(judge: Judge, value: Any, extra: list[str], at: Place, budget: ValidationBudget) -> Iterator[Fault]:
        for name in extra:
            yield from judge.faults(value[name], (at, name), budget)

    return rule


def _describe_unexpected(names: list[str]) -> str:
    shown = ", ".join(repr(name[:_QUOTED]) for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"Additional properties are not allowed ({shown}{more} {'was' if len(names) == 1 else 'were'} unexpected)"


def _require(names: Any, _schema: Mapping[str, Any]) -> Rule:
    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        if not isinstance(value, dict):
            return _NOTHING
        budget.spend(len(names) * STEPS_A_FIELD)
        return [(at, f"{name[:_QUOTED]!r} is a required property") for name in names if name not in value]

    return rule


def _items(part: Any, schema: Mapping[str, Any]) -> Rule:
    n_before = len(schema.get("prefixItems", ()))
    judge = judge_of(part) if isinstance(part, Mapping) else None

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        if part is True or not isinstance(value, list) or len(value) <= n_before:
            return _NOTHING
        if judge is not None:
            return inside(judge, value, at, budget)
        return [(at, f"has {len(value)} items; at most {n_before} are expected")]

    def inside(judge: Judge, value: Any, at: Place, budget: ValidationBudget) -> Iterator[Fault]:
        for i in range(n_before, len(value)):
            yield from judge.faults(value[i], (at, i), budget)

    return rule


def _prefix(parts: Any, _schema: Mapping[str, Any]) -> Rule:
    judges = [judge_of(part) for part in parts]

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        return inside(value, at, budget) if isinstance(value, list) else _NOTHING

    def inside(value: Any, at: Place, budget: ValidationBudget) -> Iterator[Fault]:
        for i, (judge, item) in enumerate(zip(judges, value, strict=False)):
            yield from judge.faults(item, (at, i), budget)

    return rule


def _any_of(branches: Any, _schema: Mapping[str, Any]) -> Rule:
    judges = [judge_of(branch) for branch in branches]

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        if any(judge.takes(value, budget) for judge in judges):
            return _NOTHING
        return [(at, f"{_show(value)} is not valid under any of the given schemas")]

    return rule


def _one_of(branches: Any, _schema: Mapping[str, Any]) -> Rule:
    judges = [judge_of(branch) for branch in branches]

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        n_fitting = sum(judge.takes(value, budget) for judge in judges)
        if n_fitting == 1:
            return _NOTHING
        words = "more than one" if n_fitting else "any"
        return [(at, f"{_show(value)} is not valid under just one: under {words} of the given schemas")]

    return rule


def _pattern(source: Any, _schema: Mapping[str, Any]) -> Rule:
    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        if not isinstance(value, str):
            return _NOTHING
        if len(value) > MAX_MATCHED_CHARS:
            return [(at, f"has more than the {MAX_MATCHED_CHARS:,} characters that are matched with a pattern")]
        compiled = budget.pattern(source)
        budget.spend(STEPS_A_MATCH + compiled.most_instructions(len(value)) // INSTRUCTIONS_A_STEP)
        return _NOTHING if compiled.occurs_in(value) else [(at, f"does not match {source!r}")]

    return rule


def _format(name: Any, _schema: Mapping[str, Any]) -> Rule:
    reads = FORMATS[name]

    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        if not isinstance(value, str):
            return _NOTHING
        budget.spend(STEPS_A_FORMAT)
        return _NOTHING if len(value) <= MAX_MATCHED_CHARS and reads(value) else [(at, f"is no {name}")]

    return rule


def _multiple(step: Any, _schema: Mapping[str, Any]) -> Rule:
    def rule(value: Any, at: Place, budget: ValidationBudget) -> Iterable[Fault]:
        if not _is_number(value) or _is_multiple(value, step, budget):
            return _NOTHING
        return [(at, f"{value!r} is not a multiple of {step}")]

    return rule


def _is_multiple(value: Any, step: Any, budget: ValidationBudget) -> bool:
    if not isinstance(step, float):
        return not value % step
    quotient = value / step
    try:
        return bool(int(quotient) == quotient)
    except OverflowError:  # a large value by a small step
        budget.spend(STEPS_A_FRACTION)
        return (Fraction(value) / Fraction(step)).denominator == 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bound(is_broken: Callable[[Any, Any], bool], words: str) -> Callable[[Any, Mapping[str, Any]], Rule]:
    def make_rule(bound: Any, _schema: Mapping[str, Any]) -> Rule:
        def rule(value: Any, at: Place, _budget: ValidationBudget) -> Iterable[Fault]:
            if not _is_number(value) or not is_broken(value, bound):
                return _NOTHING
            return [(at, f"{value!r} is {words} {bound!r}")]

        return rule

    return make_rule


def _size(kind: type, is_broken: Callable[[int, Any], bool], words: str) -> Callable[[Any, Mapping[str, Any]], Rule]:
    def make_rule(bound: Any, _schema: Mapping[str, Any]) -> Rule:
        def rule(value: Any, at: Place, _budget: ValidationBudget) -> Iterable[Fault]:
            if not isinstance(value, kind) or not is_broken(len(value), bound):  # type: ignore[arg-type]
                return _NOTHING
            return [(at, f"{_show(value)} is {words} ({bound} allowed)")]

        return rule

    return make_rule


_MADE: dict[str, Callable[[Any, Mapping[str, Any]], Rule]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "uniqueItems": _unique,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _require,
    "items": _items,
    "prefixItems": _prefix,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "pattern": _pattern,
    "format": _format,
    "multipleOf": _multiple,
    "minimum": _bound(lambda value, bound: value < bound, "less than the minimum of"),
    "maximum": _bound(lambda value, bound: value > bound, "greater than the maximum of"),
    "exclusiveMinimum": _bound(lambda value, bound: value <= bound, "less than or equal to the minimum of"),
    "exclusiveMaximum": _bound(lambda value, bound: value >= bound, "greater than or equal to the maximum of"),
    "minLength": _size(str, lambda n, bound: n < bound, "too short"),
    "maxLength": _size(str, lambda n, bound: n > bound, "too long"),
    "minItems": _size(list, lambda n, bound: n < bound, "too short"),
    "maxItems": _size(list, lambda n, bound: n > bound, "too long"),
    "minProperties": _size(dict, lambda n, bound: n < bound, "too small"),
    "maxProperties": _size(dict, lambda n, bound: n > bound, "too large"),
}
