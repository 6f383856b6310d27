"""A label task's list."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from backend.domain.rules.certifying import Judged, low_ppm
from backend.domain.rules.closure import compile_numbers
from backend.domain.rules.covering import Proposal, cover
from backend.domain.rules.features import held_conditions
from backend.domain.rules.rule_list import Evidence, LabelRule, RuleList

MIN_RIGHT = 3  # a rule is found on at least so many different texts
FLOOR = 0.5
Pairs = Sequence[tuple[str, str]]


def propose_labels(pairs: Pairs, *, max_rules: int) -> tuple[RuleList, int]:
    """The surest rules first, without held-out evidence; and how many were tried."""
    labels = sorted({answer for _, answer in pairs})
    which = np.array([labels.index(answer) for _, answer in pairs], dtype=np.int64)
    held = held_conditions([text for text, _ in pairs], min_support=MIN_RIGHT)
    answers = [int(np.argmax(np.bincount(which[one.rows]))) for one in held]
    proposals = [Proposal(rows=one.rows, rights=which[one.rows] == a) for one, a in zip(held, answers, strict=True)]
    rules = [
        LabelRule(
            when=held[taken.at].conditions,
            unless=(),
            answer=labels[answers[taken.at]],
            evidence=Evidence(seen=taken.covered),
        )
        for taken in cover(proposals, len(pairs), max_rules=max_rules, min_right=MIN_RIGHT, floor=FLOOR)
    ]
    return RuleList(task="label", rules=tuple(rules)), len(held)


def first_rules(rules: RuleList, pairs: Pairs) -> list[tuple[int | None, bool]]:
    """Find of each pair the rule that answers it, and whether rightly. A shorter list of the same rules answers with
    the same rule or not at all."""
    first = compile_numbers(rules)
    answers = [rule.answer for rule in rules.rules if isinstance(rule, LabelRule)]
    numbers = [first(text) for text, _ in pairs]
    return [(n, n is not None and answers[n] == answer) for n, (_, answer) in zip(numbers, pairs, strict=True)]


def without_wrong(rules: RuleList, firsts: Sequence[tuple[int | None, bool]], *, precision: float) -> RuleList:
    """Drop the rules that got less than `precision` right here."""
    support = Counter(number for number, _ in firsts if number is not None)
    right = Counter(number for number, is_right in firsts if number is not None and is_right)
    kept = [rule for number, rule in enumerate(rules.rules) if right[number] >= precision * support[number]]
    return RuleList(task="label", rules=tuple(kept))


def judge_prefix(firsts: Sequence[tuple[int | None, bool]], size: int) -> Judged:
    answered = [is_right for number, is_right in firsts if number is not None and number < size]
    return Judged(n=len(firsts), answered=len(answered), right=sum(answered))


def with_evidence(rules: RuleList, firsts: Sequence[tuple[int | None, bool]], size: int, miss: float) -> RuleList:
    """The first `size` rules, each with what it did on the held-out pairs."""
    support = [0] * rules.n
    right = [0] * rules.n
    for number, is_right in firsts:
        if number is not None:
            support[number] += 1
            right[number] += is_right
    kept = [
        LabelRule(
            when=rule.when,
            unless=rule.unless,
            answer=rule.answer,
            evidence=Evidence(
                seen=rule.evidence.seen,
                support=support[i],
                right=right[i],
                low_ppm=low_ppm(right[i], support[i], miss),
            ),
        )
        for i, rule in enumerate(rules.rules[:size])
        if isinstance(rule, LabelRule)
    ]
    return RuleList(task="label", rules=tuple(kept))
