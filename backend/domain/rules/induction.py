"""Rules from accepted pairs: proposed on one part of them, kept for what they get right on another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.domain.rules.certifying import Judged, list_sizes, longest_certified, low_ppm
from backend.domain.rules.field_induction import judge_fields, propose_fields, with_field_evidence
from backend.domain.rules.label_induction import first_rules, judge_prefix, propose_labels, with_evidence, without_wrong
from backend.domain.rules.reading import read_rules
from backend.domain.rules.rule_list import EMPTY, InvalidRules, RuleList
from backend.domain.rules.splitting import halves

MIN_PAIRS = 40
MIN_PRUNED = 300  # held-out pairs, of which a third may then drop rules before the rest judges the lists
MAX_PAIRS = 20_000  # of more the first by the splitting's order are taken


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """`precision`: the least lower bound (one-sided, at `confidence`, corrected for how many lists were tried) of what
    the list gets right of what it answers on held-out pairs. A rule's own bound stands beside it and decides nothing:
    a hundred rules that answer a dozen pairs each can be sure together and never one by one."""

    precision: float = 0.95
    confidence: float = 0.95
    max_rules: int = 400
    heldout_share: float = 0.4
    seed: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Induced:
    """`facts` are whole numbers and texts for the receipt: pairs, rules tried and kept, coverage and precision on the
    held-out part in ppm with its lower bound."""

    rules: RuleList
    facts: Mapping[str, Any]


def induce_rules(
    pairs: Sequence[tuple[str, str]], answer: Mapping[str, Any], options: RuleOptions | None = None
) -> Induced:
    """`pairs` are (input, answer text); `answer` is `domain.spec.task_prompt.answer_form`'s value ({"type": "label",
    "labels": [...]}, {"type": "json", "schema": {...}}, {"type": "text"}: never a rule). Equal pairs in any order give
    equal rules. Pairs with one input or nearly the same input are on one side of the split."""
    options = options or RuleOptions()
    form = answer.get("type")
    if form not in ("label", "json"):
        return Induced(rules=EMPTY, facts={"state": "no_rules_for_text", "pairs": len(pairs)})
    if form == "label":
        pairs = [pair for pair in pairs if pair[1] in set(answer["labels"])]
    if len(pairs) < MIN_PAIRS:
        return Induced(rules=_empty(form), facts={"state": "too_few_pairs", "pairs": len(pairs), "needed": MIN_PAIRS})
    pairs = sorted(set(pairs))
    parts = halves([text for text, _ in pairs], heldout_share=options.heldout_share, seed=options.seed)
    proposing, heldout = ([pairs[at] for at in part[:MAX_PAIRS]] for part in parts)
    induce = _labels if form == "label" else _fields
    return induce(proposing, heldout, answer, options)


def _empty(form: str) -> RuleList:
    return EMPTY if form == "label" else RuleList(task="json", rules=())


def _can_be_read(rules: RuleList) -> bool:
    """Many fields of many values can outgrow what a reader takes."""
    try:
        return read_rules(rules.to_bytes()) == rules
    except InvalidRules:
        return False


Pairs = Sequence[tuple[str, str]]


def _labels(proposing: Pairs, heldout: Pairs, _answer: Mapping[str, Any], options: RuleOptions) -> Induced:
    n_pairs = len(proposing) + len(heldout)
    rules, n_tried = propose_labels(proposing, max_rules=options.max_rules)
    if len(heldout) >= MIN_PRUNED:
        pruning, heldout = heldout[::3], [pair for at, pair in enumerate(heldout) if at % 3]
        rules = without_wrong(rules, first_rules(rules, pruning), precision=options.precision)
    firsts = first_rules(rules, heldout)
    sizes = list_sizes(rules.n, n_heldout=len(heldout))
    judged = [judge_prefix(firsts, size) for size in sizes]
    best, miss = longest_certified(judged, precision=options.precision, miss=1 - options.confidence)
    kept = with_evidence(rules, firsts, sizes[best], 1 - options.confidence) if best >= 0 else EMPTY
    return Induced(rules=kept, facts=_facts(n_pairs, len(proposing), judged, best, miss, n_tried, kept.n, options))


def _fields(proposing: Pairs, heldout: Pairs, answer: Mapping[str, Any], options: RuleOptions) -> Induced:
    n_pairs = len(proposing) + len(heldout)
    lists, n_tried = propose_fields(proposing, answer["schema"], max_rules=options.max_rules)
    lists = [rules for rules in lists if _can_be_read(rules)]
    judged = [judge_fields(rules, heldout) for rules in lists]
    best, miss = longest_certified(judged, precision=options.precision, miss=1 - options.confidence)
    kept = _empty("json")
    if best >= 0:
        kept = with_field_evidence(lists[best], heldout, 1 - options.confidence)
        kept = replace(kept, low_ppm=low_ppm(judged[best].right, judged[best].answered, miss))
    return Induced(rules=kept, facts=_facts(n_pairs, len(proposing), judged, best, miss, n_tried, kept.n, options))


def _facts(
    n_pairs: int,
    n_proposing: int,
    judged: Sequence[Judged],
    best: int,
    miss: float,
    n_tried: int,
    n_kept: int,
    options: RuleOptions,
) -> dict[str, Any]:
    """Sum up the list that was kept or, where none is sure enough, the widest one."""
    shown = judged[best] if judged else Judged(n=0, answered=0, right=0)
    return {
        "state": "kept" if best >= 0 else "none_sure_enough",
        "pairs": n_pairs,
        "proposing": n_proposing,
        "heldout": shown.n,
        "tried": n_tried,
        "lists": len(judged),
        "rules": n_kept,
        "answered": shown.answered,
        "right": shown.right,
        "coverage_ppm": shown.coverage_ppm,
        "precision_ppm": shown.precision_ppm,
        "low_ppm": low_ppm(shown.right, shown.answered, miss),
        "needed_ppm": round(options.precision * 1_000_000),
    }
