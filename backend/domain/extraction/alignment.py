"""The way from a pair back to what a model should read of its input: the spans and classes that give its answer.

Where a value occurs in several places of an input, the place is taken whose neighbours are those of the leaf's other
values (`Contexts`, counted over the places that are beyond doubt) and that no other leaf's value covers. The elements
of a list of objects lie one after another: a value of an element is looked for near the element's values that occur
once, and never beyond a neighbour's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backend.domain.extraction.assembling import field_name
from backend.domain.extraction.converters import Conversion
from backend.domain.extraction.occurrences import Document, Span, is_same, occurrences
from backend.domain.extraction.plan import LeafRule, Way
from backend.domain.extraction.reads import ClassRead, SpanRead
from backend.domain.extraction.schema_leaves import ELEMENT, Leaf

Classes = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The spans and classes of one pair; `missing` are the numbers of the rules of which a value has no place."""

    spans: tuple[SpanRead, ...]
    classes: tuple[ClassRead, ...]
    missing: frozenset[int] = frozenset()


@dataclass(slots=True)
class Contexts:
    """The words that stand beside the values of each leaf, where their place is beyond doubt."""

    before: dict[int, Counter[str]] = field(default_factory=dict)
    after: dict[int, Counter[str]] = field(default_factory=dict)

    def note(self, rule: int, document: Document, span: Span) -> None:
        before, after = neighbours(document.text, span)
        self.before.setdefault(rule, Counter())[before] += 1
        self.after.setdefault(rule, Counter())[after] += 1

    def likeness(self, rule: int, document: Document, span: Span) -> float:
        """The share of the leaf's values with the same word before, and with the same after, added."""
        counts = (self.before.get(rule, Counter()), self.after.get(rule, Counter()))
        words = neighbours(document.text, span)
        return sum(count[word] / (count.total() + 1) for count, word in zip(counts, words, strict=True))


def neighbours(text: str, span: Span) -> tuple[str, str]:
    """The folded words before and after a span; "" where there is none."""
    before, after = text[max(0, span[0] - 40) : span[0]].split(), text[span[1] : span[1] + 40].split()
    return (before[-1].casefold() if before else "", after[0].casefold() if after else "")


def values_at(answer: Any, steps: Sequence[str]) -> list[Any]:
    """The values of a leaf: one where no list is on its way (None: absent), else one for each element."""
    if not steps:
        return [answer]
    if steps[0] == ELEMENT:
        items = answer if isinstance(answer, list) else []
        return [value for item in items for value in values_at(item, steps[1:])]
    inner = answer.get(field_name(steps[0])) if isinstance(answer, Mapping) else None
    if inner is None and ELEMENT in steps[1:]:
        return []
    return values_at(inner, steps[1:])


def places_of(document: Document, rule: LeafRule, value: Any) -> list[tuple[Span, ...]]:
    """The places of a value: each one span, or the spans whose values joined are it."""
    for conversion in rule.conversions:
        spans = [span for span in occurrences(document, conversion, value) if _is_read(document, rule, span, value)]
        if spans:
            return [(span,) for span in spans]
    if rule.separator is None or not isinstance(value, str) or rule.separator not in value:
        return []
    joined: list[Span] = []
    for part in value.split(rule.separator):
        behind = [
            span for (span,) in _places(document, rule.conversions, part) if not joined or span[0] >= joined[-1][1]
        ]
        if not behind:
            return []
        joined.append(behind[0])
    return [tuple(joined)]


def _places(document: Document, conversions: Iterable[Conversion], value: Any) -> list[tuple[Span]]:
    for conversion in conversions:
        if spans := occurrences(document, conversion, value):
            return [(span,) for span in spans]
    return []


def _is_read(document: Document, rule: LeafRule, span: Span, value: Any) -> bool:
    """Say whether the first conversion that reads this span gives the value."""
    surface = document.text[span[0] : span[1]]
    for conversion in rule.conversions:
        read = conversion(surface)
        if read is not None:
            return is_same(read, value)
    return False


class Aligner:
    """Aligns pairs of one plan. `rules` and `leaves` belong together."""

    def __init__(self, rules: Sequence[LeafRule], leaves: Sequence[Leaf]) -> None:
        self.rules, self.leaves, self.contexts = rules, leaves, Contexts()

    def learn(self, pairs: Iterable[tuple[Document, Any]]) -> None:
        """Count the neighbours of the values that occur once."""
        for document, answer in pairs:
            for number, rule in self._copy_rules():
                for value in values_at(answer, self.leaves[number].steps):
                    places = [] if value is None else places_of(document, rule, value)
                    if len(places) == 1:
                        self.contexts.note(number, document, places[0][0])

    def align(self, document: Document, answer: Any) -> Alignment:
        """The spans and classes of a pair."""
        spans: list[SpanRead] = []
        missing: set[int] = set()
        wanted: list[tuple[int, list[tuple[Span, ...]]]] = []
        for number, rule in self._copy_rules():
            leaf = self.leaves[number]
            if leaf.list_path:
                continue
            values = [value for value in values_at(answer, leaf.steps) if value is not None]
            for value in values:
                places = places_of(document, rule, value)
                if places and not (_is_default(rule, value) and len(places) > 1):
                    wanted.append((number, places))
                elif not _is_default(rule, value):
                    missing.add(number)
        for number, place in self._choose_places(document, wanted):
            spans += [SpanRead(rule=number, start=start, end=end) for start, end in place]
        for path in dict.fromkeys(leaf.list_path for leaf in self.leaves if leaf.list_path):
            more, lost = self._align_elements(document, answer, path)
            spans += more
            missing |= lost
        return Alignment(spans=tuple(spans), classes=tuple(self._classes(answer)), missing=frozenset(missing))

    def _copy_rules(self) -> Iterable[tuple[int, LeafRule]]:
        return ((i, rule) for i, rule in enumerate(self.rules) if rule.way is Way.COPIED)

    def _choose_places(
        self, document: Document, wanted: Sequence[tuple[int, list[tuple[Span, ...]]]]
    ) -> list[tuple[int, tuple[Span, ...]]]:
        """One place for each value: first those that have one alone, then the others, by their neighbours."""
        chosen: list[tuple[int, tuple[Span, ...]]] = []
        for number, places in sorted(wanted, key=lambda item: len(item[1])):
            taken = [(other, span) for other, place in chosen for span in place]

            def merit(place: tuple[Span, ...], number: int = number, taken: Sequence[Any] = tuple(taken)) -> Any:
                same = any(other == number and _overlap(span, place[0]) for other, span in taken)
                covered = any(_overlap(span, place[0]) for _, span in taken)
                return (not same, not covered, self.contexts.likeness(number, document, place[0]), -place[0][0])

            best = max(places, key=merit)
            if not any(other == number and _overlap(span, best[0]) for other, span in taken):
                chosen.append((number, best))
        return chosen

    def _align_elements(self, document: Document, answer: Any, path: str) -> tuple[list[SpanRead], set[int]]:
        """The spans of a list of objects, the first of each element one that opens it."""
        members = [i for i, leaf in enumerate(self.leaves) if leaf.list_path == path]
        columns = {i: values_at(answer, self.leaves[i].steps) for i in members}
        n = max((len(column) for column in columns.values()), default=0)
        places = {
            (i, nth): [place[0] for place in places_of(document, self.rules[i], column[nth])]
            for i, column in columns.items()
            for nth in range(n)
            if self.rules[i].way is Way.COPIED and column[nth] is not None
        }
        anchors = _anchors(places, n)
        spans: list[SpanRead] = []
        missing: set[int] = set()
        each = [i for i in members if self.rules[i].way is Way.EACH]
        for nth in range(n):
            own: list[tuple[Span, int]] = []
            for (i, of), spots in places.items():
                if of != nth:
                    continue
                place = self._nearest(i, document, spots, anchors, nth, [span for span, _ in own])
                if place is not None:
                    own.append((place, i))
                elif not _is_default(self.rules[i], columns[i][nth]) and not self._is_lent(i, columns[i], nth):
                    missing.add(i)
            own.sort()
            classes = tuple(ClassRead(rule=i, value=_choice(self.rules[i], columns[i][nth])) for i in each)
            opening = SpanRead(rule=0, start=0, end=0, opens=True, classes=classes)
            ordered = [replace(opening, rule=i, start=s, end=e) for (s, e), i in own]
            spans += ordered[:1] + [replace(span, opens=False, classes=()) for span in ordered[1:]]
            missing |= set(each if not own else ())
        return spans, missing

    def _is_lent(self, rule: int, column: Sequence[Any], nth: int) -> bool:
        """Say whether another element of the list has the value that is missing in this one, and may share it."""
        others = (value for place, value in enumerate(column) if place != nth and value is not None)
        return self.rules[rule].shared is not None and any(is_same(value, column[nth]) for value in others)

    def _nearest(
        self,
        rule: int,
        document: Document,
        spots: Sequence[Span],
        anchors: Sequence[Span | None],
        nth: int,
        own: Sequence[Span],
    ) -> Span | None:
        """The place nearest to the element's anchor, not beyond the anchors of others nor on another of its values."""
        low = max((anchor[1] for anchor in anchors[:nth] if anchor), default=0)
        high = min((anchor[0] for anchor in anchors[nth + 1 :] if anchor), default=len(document.text))
        free = [
            span for span in spots if span[0] >= low and span[1] <= high and not any(_overlap(span, o) for o in own)
        ]
        anchor = anchors[nth]
        if not free:
            return None
        if anchor is None:
            return max(free, key=lambda span: (self.contexts.likeness(rule, document, span), -span[0]))
        return min(free, key=lambda span: (max(span[0] - anchor[1], anchor[0] - span[1], 0), span[0]))

    def _classes(self, answer: Any) -> Iterable[ClassRead]:
        for number, rule in enumerate(self.rules):
            values = values_at(answer, self.leaves[number].steps)
            if rule.way is Way.CLOSED:
                value = values[0] if values else None
                yield ClassRead(rule=number, value=_choice(rule, value))
            elif rule.way is Way.MANY:
                yield from (ClassRead(rule=number, value=value) for value in values if value in rule.choices)


def _anchors(places: Mapping[tuple[int, int], Sequence[Span]], n: int) -> list[Span | None]:
    """Return of each element the first value whose place is beyond doubt, as long as they are in the order of the
    text."""
    anchors: list[Span | None] = [None] * n
    last = 0
    for nth in range(n):
        sure = sorted(spots[0] for (_, of), spots in places.items() if of == nth and len(spots) == 1)
        later = [span for span in sure if span[0] >= last]
        if later:
            anchors[nth], last = later[0], later[0][1]
    return anchors


def _choice(rule: LeafRule, value: Any) -> Any:
    return next((one for one in rule.choices if is_same(one, value)), None) if value is not None else None


def _is_default(rule: LeafRule, value: Any) -> bool:
    return rule.has_default and is_same(value, rule.default)


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
