"""Streams of slices whose acceptance law is known: what `draft_policy` plays its policies on.

A stream is one tenant's family: 250 slices, each a real sentence with its embedding. A source's drafts are right for a
later slice with a probability that depends on whether the two match: they share the intent; for a fifth of the streams
the finer sub-intent; for another fifth the coarser group of intents. The law is drawn for each stream, a few pairs go
against it, 5 % of the slices are of no intent, and in 15 % of the streams the teacher changes at 60 % of the way
without saying so, after which it would write little of what it wrote before.

Every draw is made beforehand, so that all policies meet the same world.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.cluster.vq import kmeans2

from tests.bench.draft_policy_texts import Family, Rows, Texts

N_SLICES = 250
N_CANDIDATES = 12
N_KEPT = 4
SENSITIVITY = 0.95
SPECIFICITY = 0.97
OUTSIDE = 0.05
CHANGED = 0.15
CHANGE_AT = 0.6
GRAINS = ("intent", "sub-intent", "group")
GRAIN_SHARES = (0.6, 0.2, 0.2)
N_SUB_INTENTS = 3

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Index order is (slice, source slice, draft): `vectors` (T, d), unit rows; `distances` (T, T); `rates` (T, T), a
    draft's chance to be right; `matches` (T, T); `is_right` and `says_yes` (T, T, N), the truth and the judge's answer;
    `orders` (T, N), where the first four places are the pool's members that its selection keeps. `changed_at` is T
    where the teacher stays."""

    vectors: Rows
    distances: NDArray[np.float32]
    rates: NDArray[np.float32]
    matches: Flags
    is_right: Flags
    says_yes: Flags
    orders: NDArray[np.int64]
    changed_at: int

    def __len__(self) -> int:
        return len(self.distances)


def draw_streams(texts: Texts, families: Sequence[int], n: int, seed: int, n_slices: int = N_SLICES) -> list[Stream]:
    """`n` streams that take the given families in turn."""
    rngs = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n))
    return [
        _stream(texts.families[families[i % len(families)]], texts.outside, n_slices, rng) for i, rng in enumerate(rngs)
    ]


def _stream(family: Family, outside: Rows, n_slices: int, rng: np.random.Generator) -> Stream:
    n_intents = min(len(family.intents), int(rng.integers(5, 16)))
    chosen = rng.choice(len(family.intents), size=n_intents, replace=False)
    weights = 1 / np.arange(1, n_intents + 1)
    asked = rng.choice(n_intents, size=n_slices, p=weights / weights.sum())
    grain = rng.choice(GRAINS, p=GRAIN_SHARES)
    intents = [family.intents[i] for i in chosen]
    keys = _keys(intents, str(grain), rng)
    picked = [_without_repeats(len(rows), rng) for rows in intents]
    rows, key_of = [], []
    for number, intent in enumerate(asked):
        if rng.random() < OUTSIDE:
            rows.append(outside[rng.integers(len(outside))])
            key_of.append(-1 - number)  # matches nothing
        else:
            at = next(picked[intent])
            rows.append(intents[intent][at])
            key_of.append(int(keys[intent][at]))
    vectors = np.stack(rows)
    return _with_law(vectors, np.array(key_of), rng)


def _without_repeats(n: int, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    """Every sentence once, then every one again."""
    return (int(at) for _ in count() for at in rng.permutation(n))


def _keys(intents: list[Rows], grain: str, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """For every sentence the number of what has to be equal for two slices to match."""
    if grain == "sub-intent":
        parts = [kmeans2(rows, N_SUB_INTENTS, minit="++", rng=rng)[1] for rows in intents]
        return [N_SUB_INTENTS * i + part for i, part in enumerate(parts)]
    if grain == "group":
        centres = np.stack([rows.mean(axis=0) for rows in intents])
        groups = fcluster(linkage(centres, "average"), max(2, len(intents) // 2), "maxclust")
        return [np.full(len(rows), group) for rows, group in zip(intents, groups, strict=True)]
    return [np.full(len(rows), i) for i, rows in enumerate(intents)]


def _with_law(vectors: Rows, keys: NDArray[np.int64], rng: np.random.Generator) -> Stream:
    n = len(keys)
    matches = keys[:, None] == keys[None, :]
    against = rng.random((n, n)) < rng.uniform(0.02, 0.08)
    rates = np.where(matches ^ against, rng.uniform(0.75, 0.97), rng.uniform(0.005, 0.05)).astype(np.float32)
    changed_at = n
    if rng.random() < CHANGED:
        changed_at = int(CHANGE_AT * n)
        rates[changed_at:, :changed_at] *= rng.uniform(0.1, 0.6)
    is_right = rng.random((n, n, N_CANDIDATES), dtype=np.float32) < rates[:, :, None]
    said = rng.random((n, n, N_CANDIDATES), dtype=np.float32)
    return Stream(
        vectors=vectors,
        distances=1 - vectors @ vectors.T,
        rates=rates,
        matches=matches,
        is_right=is_right,
        says_yes=np.where(is_right, said < SENSITIVITY, said > SPECIFICITY),
        orders=np.stack([rng.permutation(N_CANDIDATES) for _ in range(n)]),
        changed_at=changed_at,
    )
