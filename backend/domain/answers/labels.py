"""Voting and balancing: the teacher's repeated answers become one label, labelled pairs a training set with the
declared shares.

Agreement is counted, never estimated: `votes` of `asked`, as integers. Balance is stratified down-sampling (the teacher
is not asked again here): it keeps as many pairs as the tolerance allows, the most agreed-upon first.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.domain.errors import InvalidInput

Counts = NDArray[np.int64]  # one figure a label, in the order of their names
PPM = 1_000_000
MAX_WEIGHT = 4.0  # of a pair whose label is rarer than declared: more would be a few pairs' word for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """`label` is None when nothing won alone: no allowed answer, or a tie. `votes` is what the leading label got of the
    `asked` samples; answers that are no allowed label count in `asked` alone. `counts` holds the labels that got a
    vote, most first."""

    label: str | None
    votes: int
    asked: int
    counts: tuple[tuple[str, int], ...]

    @property
    def agreement(self) -> Fraction:
        return Fraction(self.votes, self.asked) if self.asked else Fraction(0)

    @property
    def agreement_ppm(self) -> int:
        return self.votes * PPM // self.asked if self.asked else 0

    def reaches(self, min_agreement: float) -> bool:
        """Compare exactly: 4 of 5 reaches 0.8, though the float 0.8 is a little more than 4/5."""
        return self.label is not None and self.agreement >= Fraction(str(min_agreement))

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label, "votes": self.votes, "asked": self.asked, "counts": dict(self.counts)}


def vote(samples: Sequence[str | None], allowed: Collection[str]) -> Vote:
    """The plurality label of the samples. None, and any answer that is not in `allowed`, is a vote for nothing.

    >>> vote(["refund", "refund", None, "exchange", "refund"], {"refund", "exchange"})
    Vote(label='refund', votes=3, asked=5, counts=(('refund', 3), ('exchange', 1)))
    """
    tally = Counter(s for s in samples if s is not None and s in allowed)
    counts = tuple(sorted(tally.items(), key=lambda item: (-item[1], item[0])))
    is_tie = len(counts) > 1 and counts[0][1] == counts[1][1]
    winner = None if not counts or is_tie else counts[0][0]
    return Vote(label=winner, votes=counts[0][1] if counts else 0, asked=len(samples), counts=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledPair:
    """The part of a pair that balancing looks at: `key` breaks ties and depends on the text alone
    (`candidates.text_key`)."""

    key: str
    label: str
    agreement: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSkew:
    """One label's count before and after, its share of what was kept beside the declared one, and how many more pairs
    of it would let everything else stay (0 where it is not short)."""

    label: str
    available: int
    kept: int
    share_ppm: int
    target_ppm: int
    missing: int

    @property
    def deviation_ppm(self) -> int:
        return self.share_ppm - self.target_ppm


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """`kept`: indices of the pairs to train on, ascending. `within_tolerance` is False when balancing would have cost
    more than the allowed share of the pairs: then everything is kept and the skew stands in the report."""

    kept: tuple[int, ...]
    n: int
    within_tolerance: bool
    would_drop: int
    labels: tuple[LabelSkew, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "n_kept": len(self.kept),
            "within_tolerance": self.within_tolerance,
            "would_drop": self.would_drop,
            "labels": [
                {name: getattr(skew, name) for name in (*LabelSkew.__slots__, "deviation_ppm")} for skew in self.labels
            ],
        }


def balance(
    pairs: Sequence[LabeledPair],
    target_shares: Mapping[str, float],
    tolerance: float = 0.05,
    *,
    max_drop_share: float = 0.5,
) -> Balance:
    """The most pairs whose shares all lie within `tolerance` of the declared ones, by dropping the least agreed-upon of
    over-full labels.

    A label so rare that this would drop more than `max_drop_share` of the pairs leaves everything in place: half the
    data costs more accuracy than a skew does, and `missing` says how many pairs of which label would mend it.

    Raises InvalidInput for a pair whose label has no declared share, and for shares that do not sum to 1.
    """
    names = sorted(target_shares)
    targets = _target_ppm(names, target_shares)
    unknown = sorted({p.label for p in pairs} - set(names))
    if unknown:
        raise InvalidInput(f"No share is declared for {', '.join(map(repr, unknown[:5]))}.", code="unknown_label")
    counts = Counter(p.label for p in pairs)
    available = np.array([counts[name] for name in names], dtype=np.int64)
    slack = round(tolerance * PPM)
    n, most = len(pairs), _largest_balanced(available, targets, slack)
    is_kept_whole = n - most > max_drop_share * n
    kept = range(n) if is_kept_whole or most == n else _take(pairs, names, available, targets, slack, most)
    left = Counter(pairs[i].label for i in kept)
    missing = _missing(available, targets, slack) if is_kept_whole else np.zeros_like(available)
    skews = tuple(
        LabelSkew(
            label=name,
            available=counts[name],
            kept=left[name],
            share_ppm=left[name] * PPM // len(kept) if kept else 0,
            target_ppm=int(target),
            missing=int(short),
        )
        for name, target, short in zip(names, targets, missing, strict=True)
    )
    return Balance(kept=tuple(kept), n=n, within_tolerance=not is_kept_whole, would_drop=n - most, labels=skews)


def share_weights(pairs: Sequence[LabeledPair], target_shares: Mapping[str, float]) -> dict[str, float]:
    """The weight of each label's pairs with which labels count as declared: target / share, MAX_WEIGHT at most.

    >>> share_weights([LabeledPair(key=key, label=key[0]) for key in ("a1", "a2", "a3", "b1")], {"a": 0.5, "b": 0.5})
    {'a': 0.666667, 'b': 2.0}
    """
    counts, total = Counter(pair.label for pair in pairs), sum(target_shares.values())
    share = {label: n / len(pairs) for label, n in sorted(counts.items())}
    return {label: round(min(MAX_WEIGHT, target_shares[label] / total / own), 6) for label, own in share.items()}


def _target_ppm(names: Sequence[str], shares: Mapping[str, float]) -> Counts:
    total = sum(shares.values())
    if not names or any(not share >= 0 for share in shares.values()) or abs(total - 1) > 1e-3:
        raise InvalidInput(f"Label shares must be 0 or more and sum to 1; they sum to {total:.4g}.")
    return np.array([round(shares[name] / total * PPM) for name in names], dtype=np.int64)


def _bounds(total: int, targets: Counts, slack: int) -> tuple[Counts, Counts]:
    """The fewest and most of each label in a set of `total` pairs, exactly, in integers."""
    low = -((-(np.maximum(targets - slack, 0) * total)) // PPM)
    return low, (targets + slack) * total // PPM


def _largest_balanced(available: Counts, targets: Counts, slack: int) -> int:
    """The largest total for which some choice of counts is within bounds; 0 if only the empty set is."""
    for total in range(int(available.sum()), 0, -1):
        low, high = _bounds(total, targets, slack)
        if (low <= available).all() and (low <= high).all() and low.sum() <= total <= np.minimum(high, available).sum():
            return total
    return 0


def _take(
    pairs: Sequence[LabeledPair], names: Sequence[str], available: Counts, targets: Counts, slack: int, total: int
) -> tuple[int, ...]:
    """Each label's minimum first, then whatever is left of the total, always the most agreed-upon and then the lowest
    key."""
    low, high = _bounds(total, targets, slack)
    room = dict(zip(names, low.tolist(), strict=True))
    ceiling = dict(zip(names, np.minimum(high, available).tolist(), strict=True))
    ranked = sorted(range(len(pairs)), key=lambda i: (-pairs[i].agreement, pairs[i].key, pairs[i].label))
    taken: Counter[str] = Counter()
    first: list[int] = []
    rest: list[int] = []
    for i in ranked:
        is_needed = taken[pairs[i].label] < room[pairs[i].label]
        (first if is_needed else rest).append(i)
        taken[pairs[i].label] += is_needed
    for i in rest:
        if len(first) == total:
            break
        if taken[pairs[i].label] < ceiling[pairs[i].label]:
            first.append(i)
            taken[pairs[i].label] += 1
    return tuple(sorted(first))


def _missing(available: Counts, targets: Counts, slack: int) -> Counts:
    """Return how many pairs of each label to add, at least, so that none need be dropped: the smallest total that fits
    them all."""
    n = int(available.sum())
    share = targets + slack
    fits = -(-available[share > 0] * PPM // share[share > 0])  # from this total on, what there is is no longer too much
    first = max(n, int(fits.max(initial=0)))
    for total in range(first, first + 1_000):
        low, high = _bounds(total, targets, slack)
        least = np.maximum(low, available)
        if (least <= high).all() and least.sum() <= total <= high.sum():
            room = high - least
            spare: Counts = np.clip(total - least.sum() - (np.cumsum(room) - room), 0, room)
            return least - available + spare
    # no total near does, as with a tolerance of nothing: what the shares ask for, rounded up
    short: Counts = np.maximum(_bounds(first, targets, slack)[0] - available, 0)
    return short
