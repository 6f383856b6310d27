"""Streams of compiles whose acceptance is known: what `draft_pool` plays its policies on.

A stream is one tenant's family: 20 compiles of 8 slices that do not see each other. A slice has a name (a sub-intent:
an intent's sentences in three parts by k-means), a label (its intent) and a vector (a real sentence of it), so that an
earlier slice is of the same name, of the same label, or neither. Whether two slices match is another matter: they share
the intent; in a fifth of the streams the sub-intent has to be the same, in another fifth a group of intents is enough.
A source's drafts are right for a slice with a rate that depends on that; 2 to 8 % of the pairs go against it, 5 % of
the slices are of no intent, and in 15 % of the streams the teacher changes at 60 % of the way without saying so.

Every draw is made beforehand, so that all policies meet the same world: what is right, what the judge says of it when
asked and asked again, which candidates selection prefers, what the label votes see, what a local filter lets through.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.cluster.vq import kmeans2

from backend.domain.drafts.prefilter import is_off_label
from backend.domain.drafts.vocabulary import Kinship
from tests.bench.draft_policy_streams import (
    CHANGE_AT,
    CHANGED,
    GRAIN_SHARES,
    GRAINS,
    N_SUB_INTENTS,
    OUTSIDE,
    SENSITIVITY,
    SPECIFICITY,
    Flags,
)
from tests.bench.draft_policy_texts import Family, Rows

N_COMPILES, N_SLICES = 20, 8
N, K = 24, 8  # a slice's pool and its picks
ODDS = 2.0  # of a wrong draft against a right one, to be picked
LABEL_VOTES = 0.95  # of picked drafts of another label, the share that the labels pass sees
N_GOLD = 8  # gold rows of a label
MAX_TURNS, MAX_CHUNKS = 3, 20

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRates:
    """The shares that the local filter lets through: of drafts of the own label, of others."""

    own: float
    other: float


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Index order is (slice, source slice, draft); T = 160 slices, N = 24 drafts. `rates` (T, T) is a draft's chance to
    be right, `is_right` (T, T, N) whether it is; `says_yes` (2, T, T, N) the judge's answer, and that of being asked
    again; `passes` the local filter; `is_seen` whether label votes would see that it is of another label. Selection
    prefers the least of `clocks` (T, T, N) and `fresh_clocks` (T, N); `control_accepted` (compiles, turns, chunks, 2)
    and `positive_accepted` (compiles, turns, chunks) are the judge's answers to controls."""

    grain: str
    kinships: NDArray[np.object_]
    same_label: Flags
    distances: Floats
    rates: Floats
    is_right: Flags
    says_yes: Flags
    passes: Flags
    is_seen: Flags
    clocks: Floats
    fresh_clocks: Floats
    control_accepted: Flags
    positive_accepted: Flags

    def __len__(self) -> int:
        return len(self.distances)


def draw_worlds(
    families: Sequence[Family],
    outside: Rows,
    n: int,
    seed: int,
    passed: FilterRates,
    specificity: float = SPECIFICITY,
) -> Iterator[World]:
    """`n` streams that take the families in turn; the judge refuses `specificity` of the wrong drafts."""
    for i, child in enumerate(np.random.SeedSequence(seed).spawn(n)):
        yield _world(families[i % len(families)], outside, passed, specificity, np.random.default_rng(child))


def filter_rates(families: Sequence[Family], seed: int, n_draws: int = 6) -> FilterRates:
    """Measure the product's local filter on these families: 8 gold rows of each of up to 15 intents; sentences of the
    own intent, and of the three nearest other ones."""
    rng = np.random.default_rng(seed)
    own, other = [], []
    for family in families:
        for _ in range(n_draws):
            chosen = rng.choice(len(family.intents), size=min(15, len(family.intents)), replace=False)
            rows = [family.intents[i][rng.permutation(len(family.intents[i]))] for i in chosen]
            gold = np.concatenate([each[:N_GOLD] for each in rows])
            labels = [label for label in range(len(rows)) for _ in range(N_GOLD)]
            centres = np.stack([each.mean(axis=0) for each in rows])
            for label, each in enumerate(rows):
                near = np.argsort(-(centres @ centres[label]))
                wrong = np.concatenate([rows[i][N_GOLD:] for i in near[near != label][:3]])
                own.append(~is_off_label(each[N_GOLD:], [label] * len(each[N_GOLD:]), gold, labels))
                other.append(~is_off_label(wrong, [label] * len(wrong), gold, labels))
    return FilterRates(own=float(np.concatenate(own).mean()), other=float(np.concatenate(other).mean()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """A slice's numbers; those of one of no intent are its own and negative."""

    name: int
    label: int
    group: int
    vector: Rows


def _world(family: Family, outside: Rows, passed: FilterRates, specificity: float, rng: np.random.Generator) -> World:
    grain = str(rng.choice(GRAINS, p=GRAIN_SHARES))
    slices = _slices(family, outside, rng)
    vectors = np.stack([each.vector for each in slices])
    names, labels, groups = (np.array([getattr(each, what) for each in slices]) for what in ("name", "label", "group"))
    same_name, same_label = names[:, None] == names, labels[:, None] == labels
    matches = {"intent": same_label, "sub-intent": same_name, "group": groups[:, None] == groups}[grain]
    t = len(slices)
    against = rng.random((t, t)) < rng.uniform(0.02, 0.08)
    rates = np.where(matches ^ against, rng.uniform(0.75, 0.97), rng.uniform(0.005, 0.05)).astype(np.float32)
    if rng.random() < CHANGED:
        changed_at = int(CHANGE_AT * t)
        rates[changed_at:, :changed_at] *= rng.uniform(0.1, 0.6)
    is_right = rng.random((t, t, N), dtype=np.float32) < rates[:, :, None]
    answers = rng.random((2, t, t, N), dtype=np.float32)
    of_label = np.broadcast_to((same_label | (labels < 0)[:, None])[:, :, None], is_right.shape)
    controls = (N_COMPILES, MAX_TURNS, MAX_CHUNKS)
    return World(
        grain=grain,
        kinships=np.array(list(Kinship), dtype=object)[np.where(same_name, 0, np.where(same_label, 1, 2))],
        same_label=same_label,
        distances=1 - vectors @ vectors.T,
        rates=rates,
        is_right=is_right,
        says_yes=np.where(is_right, answers < SENSITIVITY, answers > specificity),
        passes=rng.random(is_right.shape) < np.where(is_right | of_label, passed.own, passed.other),
        is_seen=(rng.random(is_right.shape) < LABEL_VOTES) & ~of_label,
        clocks=(rng.exponential(size=is_right.shape) / np.where(is_right, 1.0, ODDS)).astype(np.float32),
        fresh_clocks=rng.exponential(size=(t, N)).astype(np.float32),
        control_accepted=rng.random((*controls, 2)) > specificity,
        positive_accepted=rng.random(controls) < SENSITIVITY,
    )


def _slices(family: Family, outside: Rows, rng: np.random.Generator) -> list[_Slice]:
    """20 times 8 slices of different names, of 5 to 15 intents that are asked Zipf-distributed."""
    n_intents = min(len(family.intents), int(rng.integers(5, 16)))
    intents = [family.intents[i] for i in rng.choice(len(family.intents), size=n_intents, replace=False)]
    centres = np.stack([rows.mean(axis=0) for rows in intents])
    groups = fcluster(linkage(centres, "average"), max(2, n_intents // 2), "maxclust")
    parts = [kmeans2(rows, N_SUB_INTENTS, minit="++", rng=rng)[1] for rows in intents]
    names = [(i, part) for i in range(n_intents) for part in np.unique(parts[i])]
    sentences = {name: _endless(intents[name[0]][parts[name[0]] == name[1]], rng) for name in names}
    weights = np.array([1 / (1 + i) for i, _ in names])
    slices: list[_Slice] = []
    for _ in range(N_COMPILES):
        for number in rng.choice(len(names), size=N_SLICES, replace=False, p=weights / weights.sum()):
            own = -1 - len(slices)
            if rng.random() < OUTSIDE:
                vector = outside[rng.integers(len(outside))]
                slices.append(_Slice(name=own, label=own, group=own, vector=vector))
            else:
                intent = names[number][0]
                vector = next(sentences[names[number]])
                slices.append(_Slice(name=int(number), label=intent, group=int(groups[intent]), vector=vector))
    return slices


def _endless(rows: Rows, rng: np.random.Generator) -> Iterator[Rows]:
    """Every sentence once, then every one again."""
    while True:
        for at in rng.permutation(len(rows)):
            yield rows[at]
