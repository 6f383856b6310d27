"""A json task's list: a decision list for each field, the field that tells most first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np

from backend.domain.answers.json_values import BadAnswer, is_exact, parse_answer
from backend.domain.rules.certifying import Judged, low_ppm
from backend.domain.rules.covering import Ints, Proposal, Taken, cover, without
from backend.domain.rules.extraction import compile_fields, compile_trace
from backend.domain.rules.features import Held, held_conditions
from backend.domain.rules.field_proposals import copy_proposals
from backend.domain.rules.field_texts import ABSENT, OTHER, FieldTexts, leaf, leaf_paths
from backend.domain.rules.places import Place
from backend.domain.rules.rule_list import Condition, Copy, Evidence, FieldIs, FieldRule, RuleList

MIN_RIGHT = 3
MAX_CLASSES = 40  # values of a field that other rules may ask for
FLOORS_PPM = (970_000, 940_000, 900_000, 850_000, 780_000, 700_000)  # of a rule's bound, the strictest list first
KNOWN = "<known>"
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A rule that may come to be. `literal`: the spelt value or ABSENT where nothing is copied."""

    when: tuple[Condition, ...]
    literal: str
    copy: Copy | None
    proposal: Proposal


def propose_fields(pairs: Pairs, schema: Mapping[str, Any], *, max_rules: int) -> tuple[list[RuleList], int]:
    """Lists from the strictest to the widest, and how many rules were tried."""
    paths = leaf_paths(schema)
    texts = FieldTexts(pairs, paths)
    if not paths or texts.n < MIN_RIGHT:
        return [], 0
    grown = _Grown(texts, held_conditions(texts.texts, min_support=MIN_RIGHT))
    for field in _order(texts):
        if not grown.grow(field, max_rules=max_rules):
            return [], grown.n_tried  # a field that is never sure: the list would never answer
    lists = [grown.rule_list(list(paths), floor_ppm) for floor_ppm in FLOORS_PPM]
    return [rules for rules in lists if rules is not None], grown.n_tried


def judge_fields(rules: RuleList, pairs: Pairs) -> Judged:
    """An answer is right when it is exactly the pair's, as a whole."""
    answer = compile_fields(rules)
    made = [(text_answer, right_answer) for text, right_answer in pairs if (text_answer := answer(text)) is not None]
    return Judged(
        n=len(pairs), answered=len(made), right=sum(_is_same(mine, right_answer) for mine, right_answer in made)
    )


def with_field_evidence(rules: RuleList, pairs: Pairs, miss: float) -> RuleList:
    """Each rule with what it did on held-out pairs: how often it gave its field, and rightly."""
    support, right = _counts(rules, pairs)
    known = [rule for rule in rules.rules if isinstance(rule, FieldRule)]
    counted = [
        replace(
            rule,
            evidence=Evidence(
                seen=rule.evidence.seen,
                support=support[i],
                right=right[i],
                low_ppm=low_ppm(right[i], support[i], miss),
            ),
        )
        for i, rule in enumerate(known)
    ]
    return replace(rules, rules=tuple(counted))


def _counts(rules: RuleList, pairs: Pairs) -> tuple[Counter[int], Counter[int]]:
    """Return how often each rule gave its field, and how often rightly."""
    trace = compile_trace(rules)
    support: Counter[int] = Counter()
    right: Counter[int] = Counter()
    known = [rule for rule in rules.rules if isinstance(rule, FieldRule)]
    for text, answer in pairs:
        try:
            value = parse_answer(answer)
        except BadAnswer:
            continue
        for number, literal in trace(text):
            support[number] += 1
            right[number] += leaf(value, rules.fields[known[number].field]) == (ABSENT if literal is None else literal)
    return support, right


def _is_same(mine: str, right_answer: str) -> bool:
    try:
        return is_exact(parse_answer(mine), parse_answer(right_answer))
    except BadAnswer:
        return False


def _order(texts: FieldTexts) -> list[int]:
    """Fields of few values first, of them the one whose value says most; then those that are most often there."""
    counts = [Counter(column) for column in texts.leaves]

    def key(field: int) -> tuple[bool, float, int]:
        shares = np.array(list(counts[field].values())) / texts.n
        is_open = len(counts[field]) > MAX_CLASSES
        entropy = float(-(shares * np.log(shares)).sum())
        return is_open, -round(entropy, 6) if not is_open else counts[field][ABSENT] / texts.n, field

    return sorted(range(len(counts)), key=key)


class _Grown:
    """The fields' lists as far as they are. `taken`: the words that the rules found so far copy from each text."""

    def __init__(self, texts: FieldTexts, held: list[Held]) -> None:
        self.texts = texts
        self.held: list[tuple[tuple[Condition, ...], Ints]] = [(one.conditions, one.rows) for one in held]
        self.pivots: list[tuple[FieldIs, Ints]] = []
        self.asked: list[tuple[FieldIs, Ints]] = []
        self.vocabularies: list[tuple[str, ...]] = []
        self.rules: list[tuple[list[tuple[Draft, Taken]], list[tuple[Draft, Taken]]]] = []
        self.order: list[int] = []
        self.taken: list[list[Place]] = [[] for _ in range(texts.n)]
        self.n_tried = 0

    def grow(self, field: int, *, max_rules: int) -> bool:
        """Return whether a rule was found. What asks that every word be known comes last: while a list answers, it is
        taken on trust and asked for at the end."""
        drafts = [*self._copies(field), *self._constants(field)]
        self.n_tried += len(drafts)
        sure = self._cover([d for d in drafts if KNOWN not in d.when], max_rules)
        done = np.unique(np.concatenate([np.empty(0, np.int64), *(draft.proposal.rows for draft, _ in sure)]))
        asking = [d for d in drafts if KNOWN in d.when]
        left = without([d.proposal for d in asking], done)
        asking = [replace(draft, proposal=proposal) for draft, proposal in zip(asking, left, strict=True)]
        self.rules.append((sure, self._cover(asking, max_rules)))
        self.order.append(field)
        self._take(field, [draft for draft, _ in sure])
        self._ask(field)
        return any(self.rules[-1])

    def _cover(self, drafts: Sequence[Draft], max_rules: int) -> list[tuple[Draft, Taken]]:
        proposals, floor = [draft.proposal for draft in drafts], FLOORS_PPM[-1] / 1_000_000
        covering = cover(proposals, self.texts.n, max_rules=max_rules, min_right=MIN_RIGHT, floor=floor)
        return [(drafts[one.at], one) for one in covering]

    def _copies(self, field: int) -> list[Draft]:
        proposals, phrases = copy_proposals(self.texts, field, self.taken, len(self.vocabularies), min_right=MIN_RIGHT)
        if any(one.copy.vocabulary >= 0 for one in proposals):
            self.vocabularies.append(phrases)
        drafts = []
        for one in proposals:
            drafts.append(
                Draft(when=(), literal="", copy=one.copy, proposal=Proposal(rows=one.rows, rights=one.rights))
            )
            for asked, rows in self.pivots:
                both = np.isin(one.rows, rows, assume_unique=True)
                if 0 < both.sum() < len(both):
                    part = Proposal(rows=one.rows[both], rights=one.rights[both])
                    drafts.append(Draft(when=(asked,), literal="", copy=one.copy, proposal=part))
        return drafts

    def _constants(self, field: int) -> list[Draft]:
        column = self.texts.leaves[field]
        values = sorted({value for value, n in Counter(column).items() if n >= MIN_RIGHT and value != OTHER})
        number = {value: at for at, value in enumerate(values)}
        which = np.array([number.get(value, -1) for value in column], dtype=np.int64)
        known = np.array([at for at in range(self.texts.n) if self.texts.is_known(at, field)], dtype=np.int64)
        with_known = [((asked, KNOWN), np.intersect1d(rows, known)) for asked, rows in self.asked]
        asked = [((asked,), rows) for asked, rows in self.asked]
        drafts = []
        for when, rows in ((("<known>",), known), *with_known, *asked, *self.held):
            counts = np.bincount(which[rows] + 1, minlength=2)
            counts[0] = 0
            value = int(np.argmax(counts)) - 1
            if counts[value + 1] >= MIN_RIGHT:
                proposal = Proposal(rows=rows, rights=which[rows] == value)
                drafts.append(Draft(when=tuple(when), literal=values[value], copy=None, proposal=proposal))
        return drafts

    def _take(self, field: int, drafts: Sequence[Draft]) -> None:
        """Return what the rules found copy: rightly, as far as is known here."""
        if any(draft.copy is not None for draft in drafts):
            for taken, spot in zip(self.taken, self.texts.spots[field], strict=True):
                if spot is not None:
                    taken.append(spot)

    def _ask(self, field: int) -> None:
        """Let later rules ask for this field's values; the first field's also together with a word."""
        column = self.texts.leaves[field]
        counts = Counter(column)
        if len(counts) > MAX_CLASSES or OTHER in counts:
            return
        conditions = []
        for value in sorted(counts):
            if counts[value] >= MIN_RIGHT and not (value == ABSENT and "null" in counts):
                rows = np.array([at for at, other in enumerate(column) if other == value], dtype=np.int64)
                conditions.append((FieldIs(field=field, value=_scalar(value)), rows))
        self.asked += conditions
        if self.pivots:
            return
        self.pivots = conditions
        words = [(when, rows) for when, rows in self.held if len(when) == 1 and " " not in str(when[0])]
        for asked, rows in conditions:
            for when, held in words:
                both = np.intersect1d(rows, held, assume_unique=True)
                if MIN_RIGHT <= len(both) < len(held):
                    self.held.append(((asked, *when), both))

    def rule_list(self, paths: Sequence[tuple[str, ...]], floor_ppm: int) -> RuleList | None:
        """Take of each field the rules before the first that is less sure; None where a field has no rule then."""
        rules: list[FieldRule] = []
        for field, parts in zip(self.order, self.rules, strict=True):
            sure = [one for part in parts for one in takewhile(lambda one: one[1].bound_ppm >= floor_ppm, part)]
            if not sure:
                return None
            rules += [_rule(field, draft, taken) for draft, taken in sure]
        used = {rule.copy.vocabulary for rule in rules if rule.copy is not None}
        is_asked = any(KNOWN in rule.when for rule in rules)
        return RuleList(
            task="json",
            rules=tuple(rules),
            fields=tuple(paths),
            vocabularies=tuple(v if number in used else () for number, v in enumerate(self.vocabularies)),
            known=tuple(sorted(word.decode() for word in self.texts.known)) if is_asked else (),
        )


def _scalar(literal: str) -> str | int | bool | None:
    value: str | int | bool | None = None if literal == ABSENT else parse_answer(literal)
    return value


def _rule(field: int, draft: Draft, taken: Taken) -> FieldRule:
    return FieldRule(
        field=field,
        when=draft.when,
        unless=(),
        value=None if draft.copy is not None else _scalar(draft.literal),
        copy=draft.copy,
        is_absent=draft.copy is None and draft.literal == ABSENT,
        evidence=Evidence(seen=taken.covered),
    )
