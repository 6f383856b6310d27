"""A json task's rules as one closure: each field is given by the first of its rules that applies, and the answer is
spelt only when every field was given.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from backend.domain.rules.conditions import Test, View, pad, test_of
from backend.domain.rules.places import Place, Reader, TextPlaces, reader_of
from backend.domain.rules.rule_list import Condition, FieldIs, FieldRule, RuleList
from backend.domain.rules.wording import Span

KNOWN = "<known>"
MAX_WORDS = 2_000  # of a longer text nothing is said: what a hostile list may cost stays bounded
NULL = "null"


def serialise(value: str | int | bool | None) -> str:
    """Serialise a leaf as `json_values.answer_text` does."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A rule made ready. `literal`: the spelt value, or `read` finds it in the text; `asks`, `bars`: (field, spelt
    value) that earlier fields must have, or must not."""

    field: int
    tests: tuple[Test, ...]
    vetoes: tuple[Test, ...]
    asks: tuple[tuple[int, str], ...]
    bars: tuple[tuple[int, str], ...]
    needs_known: bool
    literal: str
    is_absent: bool
    read: Reader | None

    def applies(self, view: View, literals: Sequence[str]) -> bool:
        # Loops: `all` and `any` over generators cost three times as much here.
        for field, value in self.asks:
            if literals[field] != value:
                return False
        for field, value in self.bars:
            if literals[field] == value:
                return False
        for test in self.tests:
            if not test(view):
                return False
        for veto in self.vetoes:  # noqa: SIM110
            if veto(view):
                return False
        return True


def step_of(rule: FieldRule, vocabularies: Sequence[Sequence[str]]) -> Step:
    def tests(conditions: Sequence[Condition]) -> tuple[Test, ...]:
        return tuple(test_of(c) for c in conditions if isinstance(c, str) and c != KNOWN)

    def fields(conditions: Sequence[Condition]) -> tuple[tuple[int, str], ...]:
        return tuple((c.field, serialise(c.value)) for c in conditions if isinstance(c, FieldIs))

    return Step(
        field=rule.field,
        tests=tests(rule.when),
        vetoes=tests(rule.unless),
        asks=fields(rule.when),
        bars=fields(rule.unless),
        needs_known=KNOWN in rule.when,
        literal=NULL if rule.is_absent or rule.copy is not None else serialise(rule.value),
        is_absent=rule.is_absent,
        read=None if rule.copy is None else reader_of(rule.copy, vocabularies),
    )


class FieldPlace(NamedTuple):
    """A field of an answer that has a value: its path, and the place of the text (code points) that it was copied from;
    None where it was not."""

    path: str
    start: int | None
    end: int | None


class Filling:
    """One text's fields as they are given: `literals` (NULL too where absent), `absent`, `copied` (the code
    points that a field was copied from), and which words were taken."""

    __slots__ = ("absent", "copied", "literals", "needs_known", "places", "taken", "view")

    def __init__(self, text: str, n_fields: int) -> None:
        self.places = TextPlaces(text)
        self.view = View(text, pad(self.places.words))
        self.literals = [NULL] * n_fields
        self.absent = [False] * n_fields
        self.copied: dict[int, Span] = {}
        self.taken: list[Place] = []
        self.needs_known = False

    def give(self, step: Step) -> bool:
        """Return whether the rule gave its field."""
        if not step.applies(self.view, self.literals):
            return False
        value = step.literal
        if step.read is not None:
            read = step.read(self.places, self.taken)
            if read is None:
                return False
            value, place, span = read
            self.taken.append(place)
            self.copied[step.field] = span
        self.literals[step.field] = value
        self.absent[step.field] = step.is_absent
        self.needs_known |= step.needs_known
        return True

    def is_known(self, known: frozenset[bytes]) -> bool:
        return all(
            word in known or any(first <= at < end for first, end in self.taken)
            for at, word in enumerate(self.places.words)
        )


def compile_fields(rules: RuleList) -> Callable[[str], str | None]:
    fill, write = _filler(rules), _writer(rules.fields)

    def answer(text: str) -> str | None:
        filling = fill(text)
        return None if filling is None else write(filling.literals, filling.absent)

    return answer


def compile_places(rules: RuleList) -> Callable[[str], list[FieldPlace]]:
    """Return where the values of the list's answer to a text stand; nothing where it has no answer."""
    fill, paths = _filler(rules), ["".join(f"/{name}" for name in path) for path in rules.fields]

    def places(text: str) -> list[FieldPlace]:
        filling = fill(text)
        if filling is None:
            return []
        valued = [field for field, literal in enumerate(filling.literals) if literal != NULL]
        return [FieldPlace(paths[field], *filling.copied.get(field, (None, None))) for field in valued]

    return places


def _filler(rules: RuleList) -> Callable[[str], Filling | None]:
    """Return what fills the fields of a text; None where not every one of them is given."""
    steps = [step_of(rule, rules.vocabularies) for rule in rules.rules if isinstance(rule, FieldRule)]
    groups = [_group(tuple(group)) for _, group in groupby(steps, lambda step: step.field)]
    known = frozenset(word.encode() for word in rules.known)
    n_fields = len(rules.fields)

    def fill(text: str) -> Filling | None:
        filling = Filling(text, n_fields)
        if len(filling.places.words) > MAX_WORDS:
            return None
        for pivot, by_value, other in groups:
            for step in by_value.get(filling.literals[pivot], other):
                if filling.give(step):
                    break
            else:
                return None
        return None if filling.needs_known and not filling.is_known(known) else filling

    if len(groups) != n_fields or not groups:
        return lambda _text: None
    return fill


Group = tuple[int, dict[str, tuple[Step, ...]], tuple[Step, ...]]


def _group(steps: tuple[Step, ...]) -> Group:
    """The steps that can give a field, by the value of the earlier field that most of them ask for: (that field, steps
    by value, steps at other values), each as far as the first that asks for nothing more."""
    asked = Counter(field for step in steps for field, _ in step.asks)
    pivot = min(asked, key=lambda field: (-asked[field], field), default=-1)
    values = {value for step in steps for field, value in step.asks if field == pivot}

    def possible(value: str | None) -> tuple[Step, ...]:
        left: list[Step] = []
        for step in steps:
            if any(field == pivot and wanted != value for field, wanted in step.asks):
                continue
            left.append(step)
            others = [field for field, _ in step.asks if field != pivot]
            if not (step.tests or step.vetoes or step.bars or others) and step.read is None:
                break
        return tuple(left)

    return pivot, {value: possible(value) for value in values}, possible(None)


def compile_trace(rules: RuleList) -> Callable[[str], list[tuple[int, str | None]]]:
    """Return which rule gave each field, as far as the list came, and the spelt value (None: absent): what its evidence
    is counted from."""
    steps = [
        (i, step_of(rule, rules.vocabularies)) for i, rule in enumerate(rules.rules) if isinstance(rule, FieldRule)
    ]
    groups = [tuple(group) for _, group in groupby(steps, lambda one: one[1].field)]

    def trace(text: str) -> list[tuple[int, str | None]]:
        filling = Filling(text, len(rules.fields))
        decided: list[tuple[int, str | None]] = []
        for group in groups:
            number, step = next(((n, step) for n, step in group if filling.give(step)), (-1, None))
            if step is None:
                break
            decided.append((number, None if step.is_absent else filling.literals[step.field]))
        return decided

    return trace


Tree = list[tuple[str, Any]]  # of an object: its names, spelt, and what they hold: a field's index or a Tree


def tree_of(paths: Sequence[tuple[str, ...]]) -> Tree:
    """
    >>> tree_of([("intent",), ("slots", "city")])
    [('"intent"', 0), ('"slots"', [('"city"', 1)])]
    """
    whole: Tree = []
    inside: dict[tuple[str, ...], Tree] = {(): whole}
    for number, path in enumerate(paths):
        for depth in range(1, len(path)):
            if path[:depth] not in inside:
                inside[path[:depth]] = []
                inside[path[: depth - 1]].append((serialise(path[depth - 1]), inside[path[:depth]]))
        inside[path[:-1]].append((serialise(path[-1]), number))
    return whole


def _writer(paths: Sequence[tuple[str, ...]]) -> Callable[[list[str], list[bool]], str]:
    tree = tree_of(paths)

    def write(node: Tree, literals: list[str], absent: list[bool]) -> str:
        parts = [
            f"{name}: {literals[inner] if isinstance(inner, int) else write(inner, literals, absent)}"
            for name, inner in node
            if not (isinstance(inner, int) and absent[inner])
        ]
        return "{" + ", ".join(parts) + "}"

    return lambda literals, absent: write(tree, literals, absent)
