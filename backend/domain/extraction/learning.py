"""Learning of an extraction plan from pairs: for each leaf the way and the converters that reproduce its values.

What a plan reproduces is measured, not supposed: each pair is aligned, put together again from its own spans and
classes, and compared with its answer, leaf by leaf. A plan that brings back fewer than `LEAST_SHARE` of the values, or
loses a leaf, is no extraction: its `refusals` say which leaves, with examples.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from backend.domain.answers.excerpts import excerpt
from backend.domain.answers.json_values import Leaf as ValueLeaf
from backend.domain.answers.json_values import fields_of
from backend.domain.canonical import canonical_json
from backend.domain.extraction.alignment import Aligner, Alignment, places_of, values_at
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.conversions import Choice, conversions_for
from backend.domain.extraction.occurrences import Document, is_same
from backend.domain.extraction.plan import NO_ANCHOR, NOT_READ, PPM, ExtractionPlan, LeafRule, Refusal, Way
from backend.domain.extraction.reads import SpanRead
from backend.domain.extraction.schema_leaves import Leaf, leaves_of_schema
from backend.domain.extraction.sharing_choice import with_sharing

LEAST_SHARE_PPM = 900_000  # of all leaf values that a plan brings back, below which it is none
LEAST_LEAF_PPM = 500_000  # of a leaf's own values
FEW = 5  # values of a leaf, of which the share says nothing
MOST_CLASSES = 600
FEW_CHOICES = 20  # up to which an enum is a closed set without asking whether its values stand in the inputs
MOST_EXAMPLES = 3
LEAST_EXPECTED = 5  # values of a leaf that a class has none of, to bar it: by chance once in 150
MOST_SPLIT = 200  # one in so many edges of spans may lie within a word

Pairs = Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """The values of a leaf: of each pair those that are there, with its document; `n_absent` pairs have none, and in
    `n_null` of them null is written."""

    leaf: Leaf
    values: list[tuple[Document, Any]]
    n_absent: int
    n_null: int


def learn_plan(schema: Mapping[str, Any], pairs: Pairs) -> ExtractionPlan:
    """The plan that reproduces most of the pairs, with its refusals."""
    leaves, unreadable = leaves_of_schema(schema)
    documents = [(Document(text), answer) for text, answer in pairs]
    rules = [_rule(_column(leaf, documents)) for leaf in leaves]
    aligner = Aligner(rules, leaves)
    aligner.learn(documents)
    aligned = [aligner.align(document, answer) for document, answer in documents]
    layers = _layers(rules, [one.spans for one in aligned])
    rules = [_with_bars(number, rule, len(rules), aligned) for number, rule in enumerate(rules)]
    plan = ExtractionPlan(
        rules=tuple(rules), layers=layers, fallback=_typical(pairs), n_pairs=len(pairs), n_values=0, n_right=0
    )
    plan = with_sharing(schema, plan, [(d, answer, one) for (d, answer), one in zip(documents, aligned, strict=True)])
    assembler = Assembler(schema, plan)
    n_values: Counter[str] = Counter()
    n_right: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for (document, answer), one in zip(documents, aligned, strict=True):
        made, _ = assembler.answer(document.text, one.spans, one.classes)
        _compare(made, answer, n_values, n_right, wrong)
    refusals = [Refusal(path=part.path, why=part.why) for part in unreadable if _is_used(part.path, n_values)]
    named = tuple(one.path for one in refusals)
    each = {plan.rules[i].path for i in plan.element_rules()}
    lost = _refusals(n_values, n_right, wrong, each=each)
    refusals += [one for one in lost if not one.path.startswith(named or ("//",))]
    counted = tuple(replace(rule, n=n_values[rule.path], n_right=n_right[rule.path]) for rule in plan.rules)
    return replace(
        plan,
        rules=counted,
        n_values=n_values.total(),
        n_right=n_right.total(),
        refusals=tuple(refusals),
        whole_words=_are_whole([(d, one.spans) for (d, _), one in zip(documents, aligned, strict=True)]),
    )


def is_extraction(plan: ExtractionPlan) -> bool:
    """Say whether a student that extracts can be right about this task."""
    return not plan.refusals and plan.share_ppm >= LEAST_SHARE_PPM and plan.n_values > 0


def _column(leaf: Leaf, documents: Sequence[tuple[Document, Any]]) -> _Column:
    values: list[tuple[Document, Any]] = []
    n_absent = n_null = 0
    for document, answer in documents:
        own = values_at(answer, leaf.steps)
        values += [(document, value) for value in own if value is not None]
        if not leaf.is_listed and not leaf.list_path and own == [None]:
            n_absent += 1
            n_null += _writes_null(answer, leaf.steps)
        elif leaf.list_path:
            n_absent += sum(value is None for value in own)
    return _Column(leaf=leaf, values=values, n_absent=n_absent, n_null=n_null)


def _writes_null(answer: Any, steps: Sequence[str]) -> bool:
    here = answer
    for step in steps:
        if not isinstance(here, Mapping) or step not in here:
            return False
        here = here[step]
    return here is None


def _rule(column: _Column) -> LeafRule:
    leaf, values = column.leaf, [value for _, value in column.values]
    if not values:
        return LeafRule(path=leaf.path, way=Way.ABSENT, writes_null=column.n_null > 0)
    distinct = _distinct(values)
    fallback = distinct[0][0]
    rule = LeafRule(
        path=leaf.path,
        way=Way.COPIED,
        fallback=fallback,
        writes_null=2 * column.n_null > column.n_absent,
        is_always=column.n_absent == 0 and not leaf.is_listed,
    )
    if len(distinct) == 1 and not column.n_absent and len(values) >= FEW and not leaf.is_listed:
        return replace(rule, way=Way.CONSTANT, default=fallback, has_default=True)
    is_boolean = all(isinstance(value, bool) for value in values)
    is_small = leaf.choices is not None and (is_boolean or len(leaf.choices) <= FEW_CHOICES)
    if is_small and not (leaf.list_path and _stand_in_texts(column)):
        return _classes(rule, leaf, distinct, column) or _copy_rule(rule, column)[0]
    copied, n_right = _copy_rule(rule, column)
    if n_right * PPM >= LEAST_SHARE_PPM * len(values):
        return copied
    is_closed = len(distinct) <= MOST_CLASSES and 3 * len(distinct) <= len(values)
    if leaf.choices is not None or (is_closed and 2 * n_right < len(values)):
        return _classes(rule, leaf, distinct, column) or copied
    return copied


def _stand_in_texts(column: _Column) -> bool:
    """Say whether nearly all values are copied as whole words, those that are written where none is read not among
    them: the letter S stands in most texts that say "small". An element of a list says more of a value that stands in
    it than the token that opens it."""
    choice = conversions_for(column.leaf, column.values)
    rule = LeafRule(path="", way=Way.COPIED, conversions=choice.conversions, separator=choice.separator)
    n_whole = sum(
        all(document.is_boundary(at) for span in place for at in span)
        for document, value in column.values
        for place in places_of(document, rule, value)[:1]
    )
    return n_whole * PPM >= LEAST_SHARE_PPM * len(column.values)


def _classes(rule: LeafRule, leaf: Leaf, distinct: Sequence[tuple[Any, int]], column: _Column) -> LeafRule | None:
    """A closed set of the values that the pairs have; None of too many."""
    if len(distinct) > MOST_CLASSES:
        return None
    values = _in_order([value for value, _ in distinct], leaf.choices)
    if leaf.is_listed:
        return replace(rule, way=Way.MANY, choices=values)
    way = Way.EACH if leaf.list_path else Way.CLOSED
    return replace(rule, way=way, choices=(None, *values) if column.n_absent else values)


def _in_order(values: Sequence[Any], choices: Sequence[Any] | None) -> tuple[Any, ...]:
    """The values as the schema lists them, else by their spelling."""
    if choices is not None:
        return tuple(one for one in choices if any(is_same(one, value) for value in values))
    return tuple(sorted(values, key=lambda value: (str(type(value)), str(value))))


def _copy_rule(rule: LeafRule, column: _Column) -> tuple[LeafRule, int]:
    """The rule with the conversions that reproduce most values, and how many; a value that is written where none is
    read counts among them."""
    choice: Choice = conversions_for(column.leaf, column.values)
    made = replace(rule, conversions=choice.conversions, separator=choice.separator)
    left = _distinct([value for _, value in choice.missed])
    if left and left[0][1] > max(1, len(choice.missed) // 2) and column.n_absent == 0:
        default, n = left[0]
        return replace(made, default=default, has_default=True, is_always=False), choice.n_right + n
    return replace(made, is_always=made.is_always and not choice.missed), choice.n_right


def _distinct(values: Sequence[Any]) -> list[tuple[Any, int]]:
    """The different values, the commonest first."""
    counts: Counter[bytes] = Counter()
    first: dict[bytes, Any] = {}
    for value in values:
        key = canonical_json(value)
        counts[key] += 1
        first.setdefault(key, value)
    return [(first[key], n) for key, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _layers(rules: Sequence[LeafRule], aligned: Sequence[Sequence[Any]]) -> tuple[tuple[int, ...], ...]:
    """The copied leaves in as few layers as keep those apart whose spans overlap."""
    clashes: set[tuple[int, int]] = set()
    for spans in aligned:
        ordered = sorted(spans, key=lambda span: (span.start, span.end))
        for i, one in enumerate(ordered):
            for other in ordered[i + 1 :]:
                if other.start >= one.end:
                    break
                clashes.add((min(one.rule, other.rule), max(one.rule, other.rule)))
    layers: list[list[int]] = []
    for number, rule in enumerate(rules):
        if rule.way is not Way.COPIED:
            continue
        free = (layer for layer in layers if all((min(i, number), max(i, number)) not in clashes for i in layer))
        layer = next(free, None)
        if layer is None:
            layers.append([number])
        else:
            layer.append(number)
    return tuple(map(tuple, layers))


def _with_bars(number: int, rule: LeafRule, n_rules: int, aligned: Sequence[Alignment]) -> LeafRule:
    """The rule of a closed set with the leaves that each of its classes bars: those that none of its pairs has, though
    by their share in all pairs it would be expected to have LEAST_EXPECTED."""
    if rule.way is not Way.CLOSED:
        return rule
    n_of: Counter[int] = Counter()
    there: Counter[tuple[int, int]] = Counter()
    for one in aligned:
        chosen = next((read.value for read in one.classes if read.rule == number), None)
        place = next((i for i, value in enumerate(rule.choices) if value is chosen or is_same(value, chosen)), None)
        if place is None:
            continue
        n_of[place] += 1
        there.update((place, leaf) for leaf in {span.rule for span in one.spans})
    total = Counter(leaf for (_, leaf), n in there.items() for _ in range(n))
    bars = tuple(
        tuple(
            leaf
            for leaf in range(n_rules)
            if not there[place, leaf] and n_of[place] * total[leaf] >= LEAST_EXPECTED * n_of.total()
        )
        for place in range(len(rule.choices))
    )
    return replace(rule, bars=bars if any(bars) else ())


def _are_whole(aligned: Sequence[tuple[Document, Sequence[SpanRead]]]) -> bool:
    """Say whether nearly all spans begin and end where words do."""
    edges = [document.is_boundary(at) for document, spans in aligned for one in spans for at in (one.start, one.end)]
    return MOST_SPLIT * (len(edges) - sum(edges)) <= len(edges)


def _typical(pairs: Pairs) -> Any:
    """The commonest answer."""
    return _distinct([answer for _, answer in pairs])[0][0] if pairs else None


def _compare(
    made: Any, answer: Any, n_values: Counter[str], n_right: Counter[str], wrong: dict[str, list[str]]
) -> None:
    ours = fields_of(made)
    for path, wanted in fields_of(answer).items():
        same = (wanted & ours.get(path, Counter())).total()
        n_values[path] += wanted.total()
        n_right[path] += same
        lost: list[ValueLeaf] = list((wanted - ours.get(path, Counter())).elements())
        wrong.setdefault(path, []).extend(str(value) for _, _, value in lost[:MOST_EXAMPLES])


def _is_used(path: str, n_values: Mapping[str, int]) -> bool:
    """Say whether a pair has a value below this path."""
    return any(name == path or name.startswith(f"{path}/") for name in n_values)


def _refusals(
    n_values: Mapping[str, int], n_right: Mapping[str, int], wrong: Mapping[str, Sequence[str]], *, each: Set[str]
) -> list[Refusal]:
    """`each` are the paths of closed sets in lists of objects."""
    refusals = []
    for path, n in sorted(n_values.items()):
        if n >= FEW and n_right[path] * PPM < LEAST_LEAF_PPM * n:
            examples = tuple(excerpt(value, 60) for value in list(dict.fromkeys(wrong[path]))[:MOST_EXAMPLES])
            why = NO_ANCHOR if path in each else NOT_READ
            refusals.append(Refusal(path=path, why=why, n=n, n_wrong=n - n_right[path], examples=examples))
    return refusals
