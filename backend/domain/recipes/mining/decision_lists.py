"""Decision lists: of the cues that examples have, those that tell what comes, the most telling first."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

WHOLE = 1_000  # weight of an example on which all samples agree
MAX_RULES = 24
_WRONG_COSTS = 2


class Example(NamedTuple):
    """`says`: by cue what it says here, None where that is wrong. `weight`: up to WHOLE, of what is right."""

    says: Mapping[str, Hashable]
    weight: int


class Rule(NamedTuple):
    """`covered`: the examples that it decides."""

    cue: str
    label: Hashable
    covered: tuple[int, ...]


def decision_list(examples: Sequence[Example], *, min_support: int, min_agreement_ppm: int) -> list[Rule]:
    """Each rule is right for `min_agreement_ppm` of the examples that those before it left, one wrong one more being
    counted. Raises nothing; [] where no cue tells enough."""
    having: dict[str, list[int]] = defaultdict(list)
    for i, (says, _) in enumerate(examples):
        for cue in says:
            having[cue].append(i)
    having = {cue: of_cue for cue, of_cue in having.items() if len(of_cue) >= min_support}
    counts = {cue: _count(cue, [examples[i] for i in of_cue]) for cue, of_cue in having.items()}
    n_left = {cue: len(of_cue) for cue, of_cue in having.items()}
    scores = {cue: _score(cue, n, counts[cue], min_support, min_agreement_ppm) for cue, n in n_left.items()}
    left, rules = set(range(len(examples))), list[Rule]()
    while left and len(rules) < MAX_RULES:
        best = max((score for score in scores.values() if score is not None), default=None)
        if best is None:
            break
        *_, cue = best
        covered = tuple(i for i in having[cue] if i in left)
        rules.append(Rule(cue, _commonest(counts[cue])[0], covered))
        left -= set(covered)
        changed = set[str]()
        for says, weight in (examples[i] for i in covered):
            for other in says.keys() & having.keys():
                label = says[other]
                counts[other][label] -= weight if label is not None else WHOLE
                n_left[other] -= 1
                changed.add(other)
        for other in changed:
            scores[other] = _score(other, n_left[other], counts[other], min_support, min_agreement_ppm)
    return rules


def _count(cue: str, having: Sequence[Example]) -> Counter[Hashable]:
    counts: Counter[Hashable] = Counter()
    for says, weight in having:
        label = says[cue]
        counts[label] += weight if label is not None else WHOLE
    return counts


def _score(
    cue: str, n: int, counts: Counter[Hashable], min_support: int, min_agreement_ppm: int
) -> tuple[int, int, str] | None:
    if n < min_support:
        return None
    _, right = _commonest(counts)
    if right * 1_000_000 < (n + 1) * WHOLE * min_agreement_ppm:
        return None
    return right - _WRONG_COSTS * (n * WHOLE - right), -len(cue), cue


def _commonest(counts: Counter[Hashable]) -> tuple[Hashable, int]:
    known = [(label, n) for label, n in counts.items() if label is not None]
    return max(known, key=lambda one: (one[1], str(one[0])), default=(None, 0))
