"""The label votes on picks as evidence of bad drafts.

A label task's teacher votes on the label of every pick, drafts and fresh candidates alike. A slice is written for one
label, so a draft whose votes name another is one that the teacher would not have written for it. Good texts get other
votes too; how often, the fresh picks show. So what counts is how much oftener drafts do than fresh picks of their own
slice. Where a slice picked drafts alone, they are compared with the fresh picks of all slices.

The texts of a slice succeed and fail together. So a slice is one observation, and nothing is assumed about what is
inside it; between slices only that what is expected of the next stays within the bound, whatever the last ones were.
What this cannot see: a bad draft that has the label of its slice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from backend.domain.confidence_sequences import Floats, mean_high, mean_low
from backend.domain.errors import InvalidInput

FULL_SLICE = 8  # a slice of so many weighs as a whole one, one of fewer less; more say little more: they cluster


class SliceVotes(NamedTuple):
    """A slice's draft picks and fresh picks that have votes, and how many of each have another label than the slice."""

    n_drafts: int = 0
    n_drafts_other: int = 0
    n_fresh: int = 0
    n_fresh_other: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelVotes:
    """The number of slices that had such votes: all that the bounds need, in any order."""

    slices: Mapping[SliceVotes, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for votes, times in self.slices.items():
            if times < 0 or not (0 <= votes[1] <= votes[0] and 0 <= votes[3] <= votes[2]):
                raise InvalidInput(f"{tuple(votes)} are no votes of {times} slices.")

    @classmethod
    def of(cls, slices: Iterable[SliceVotes]) -> "LabelVotes":
        return cls(slices=Counter(slices))

    def __add__(self, other: "LabelVotes") -> "LabelVotes":
        return LabelVotes(slices=Counter(self.slices) + Counter(other.slices))

    @property
    def total(self) -> SliceVotes:
        return SliceVotes(*(sum(times * votes[i] for votes, times in self.slices.items()) for i in range(4)))

    def to_json(self) -> list[list[int]]:
        """One `[drafts, of another label, fresh, of another label, slices]` for each kind of slice, sorted.

        >>> LabelVotes.of([SliceVotes(10, 1, 6, 0), SliceVotes(10, 1, 6, 0)]).to_json()
        [[10, 1, 6, 0, 2]]
        """
        return sorted([*votes, times] for votes, times in self.slices.items())

    @classmethod
    def from_json(cls, rows: Iterable[Iterable[int]]) -> "LabelVotes":
        return cls(slices={SliceVotes(*votes): times for *votes, times in rows})


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLabel:
    """The share of draft picks that have another label, beyond that of fresh picks. `estimate` is None before there is
    anything to compare; each of (low, high) holds at all times at once."""

    votes: LabelVotes
    estimate: float | None
    low: float
    high: float


def other_label(votes: LabelVotes, alpha: float = 0.025) -> OtherLabel:
    """The share of draft picks that have another label because they are drafts. `low` is the greater of two bounds, of
    the drafts beside fresh picks of their slice and of those without any; each is too high, at any time, with a
    chance of at most alpha / 2; likewise `high`.

    The first asks only that a slice's good drafts get other votes no oftener than its fresh picks. The second also asks
    that slices without fresh picks are no harder to label than those with them.

    >>> found = other_label(LabelVotes.of([SliceVotes(10, 2, 6, 0)] * 40))
    >>> [round(share, 3) for share in (found.estimate, found.low, found.high)]
    [0.2, 0.051, 0.299]
    """
    paired, alone, fresh = _pairs(votes), _alone(votes), _fresh(votes)
    half, quarter = alpha / 2, alpha / 4
    fresh_low, fresh_high = mean_low(*fresh, least=0.0, alpha=quarter), mean_high(*fresh, most=1.0, alpha=quarter)
    low = max(mean_low(*paired, least=-1.0, alpha=half), mean_low(*alone, least=0.0, alpha=quarter) - fresh_high, 0.0)
    highs = [mean_high(*paired, most=1.0, alpha=half)] if paired[0].size else []
    highs += [mean_high(*alone, most=1.0, alpha=quarter) - fresh_low] if alone[0].size else []
    high = min(1.0, max(0.0, *highs)) if highs else 1.0
    return OtherLabel(votes=votes, estimate=_estimate(paired, alone, fresh, low), low=low, high=high)


_Observations = tuple[Floats, Floats, Floats]  # (m,) values, weights and times


def _pairs(votes: LabelVotes) -> _Observations:
    slices = [(v, times) for v, times in votes.slices.items() if v.n_drafts and v.n_fresh]
    return _observations(
        (v.n_drafts_other / v.n_drafts - v.n_fresh_other / v.n_fresh, v.n_drafts, times) for v, times in slices
    )


def _alone(votes: LabelVotes) -> _Observations:
    slices = [(v, times) for v, times in votes.slices.items() if v.n_drafts and not v.n_fresh]
    return _observations((v.n_drafts_other / v.n_drafts, v.n_drafts, times) for v, times in slices)


def _fresh(votes: LabelVotes) -> _Observations:
    slices = [(v, times) for v, times in votes.slices.items() if v.n_fresh]
    return _observations((v.n_fresh_other / v.n_fresh, v.n_fresh, times) for v, times in slices)


def _observations(rows: Iterable[tuple[float, int, int]]) -> _Observations:
    values, n, times = np.array(list(rows), dtype=np.float64).reshape(-1, 3).T
    return values, np.minimum(n, FULL_SLICE) / FULL_SLICE, times


def _estimate(paired: _Observations, alone: _Observations, fresh: _Observations, low: float) -> float | None:
    """The mean over slices by their weights, at least `low`."""
    if not fresh[0].size or not paired[0].size + alone[0].size:
        return None
    expected = float(np.average(fresh[0], weights=fresh[1] * fresh[2]))
    values = np.concatenate([paired[0], alone[0] - expected])
    weights = np.concatenate([paired[1] * paired[2], alone[1] * alone[2]])
    return max(low, float(np.average(values, weights=weights)))
