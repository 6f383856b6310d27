"""The methods that the quality bench compares: what each keeps of a pool, as row indices.

All but `mmr` are one call of `select`. `mmr` is pyversity's (MIT), where it is installed; it knows no strata and picks
from the whole pool.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from backend.domain.selection.allocation import allocate_largest_remainder
from backend.domain.selection.select import Beside, select
from tests.bench.selection_quality_pools import Pool, Scenario

try:
    import pyversity
except ImportError:  # a peer, not a dependency
    pyversity = None

Keeps = Callable[[Pool, Scenario, int], Sequence[int]]
FLOOR = 1 / 3
LAMBDAS = (0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0)
ALL, FILTER, EQUAL_COST = "all", "filter 2/3", "all, equal cost"


def _selected(
    pool: Pool, scenario: Scenario, seed: int, *, k: int | None = None, told: bool = True, **options: Any
) -> Sequence[int]:
    """`told`: whether the labels are shown where they are not the strata."""
    labels = [pool.intents[label] for label in pool.labels.tolist()] if scenario.sliced or told else None
    return select(
        pool.rows,
        pool.scores,
        pool.texts,
        k=scenario.k if k is None else k,
        labels=labels,
        stratify=scenario.sliced,
        seed=seed,
        **options,
    ).picks


def _part(pool: Pool, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    return pool.rows[rows], pool.scores[rows], [pool.texts[i] for i in rows]


def _beside(pool: Pool, rows: np.ndarray, with_others: bool) -> dict[str, Any]:
    if not with_others:
        return {}
    names = [pool.intents[label] for label in pool.labels.tolist()]
    others = np.setdiff1d(np.arange(len(pool.texts)), rows)
    embeddings, scores, keys = _part(pool, others)
    beside = Beside(embeddings=embeddings, scores=scores, keys=keys, labels=[names[i] for i in others])
    return {"labels": [names[i] for i in rows], "stratify": False, "beside": beside}


def _slice_by_slice(pool: Pool, scenario: Scenario, seed: int, *, with_others: bool = False) -> Sequence[int]:
    """From each slice by itself, where all labels are the same and tell nothing; `with_others`: as a compile selects,
    which knows the candidates of the other slices and their labels."""
    if not scenario.sliced:
        return _selected(pool, scenario, seed, method="auto", told=False)
    sizes = np.bincount(pool.labels, minlength=len(pool.intents))
    shares = allocate_largest_remainder(scenario.k, sizes[sizes > 0].tolist())
    picks: list[int] = []
    for label, k in zip(np.flatnonzero(sizes).tolist(), shares, strict=True):
        rows = np.flatnonzero(pool.labels == label)
        own = select(*_part(pool, rows), k=k, seed=seed, **_beside(pool, rows, with_others)).picks
        picks += rows[list(own)].tolist()
    return picks


def _by_form(keeps: Keeps) -> Keeps:
    """Without a verifier of its own a compile's scores are forms, which are 1 for nearly all."""
    return lambda pool, scenario, seed: keeps(replace(pool, scores=np.ones(len(pool.texts))), scenario, seed)


def _filtered(pool: Pool, scenario: Scenario, seed: int) -> Sequence[int]:
    """The two thirds with the best scores: twice the labels of K = N/3."""
    return _selected(pool, scenario, seed, k=max(scenario.k, 2 * len(pool.texts) // 3), method="top_k")


def _equal_cost(pool: Pool, scenario: Scenario, seed: int) -> Sequence[int]:
    """Without selection, what N drafts and K labels cost buys (N + K) / 2 labelled drafts."""
    return np.random.default_rng([seed, 7]).permutation(len(pool.texts))[: (len(pool.texts) + scenario.k) // 2].tolist()


def _random(pool: Pool, scenario: Scenario, seed: int) -> Sequence[int]:
    return _selected(pool, scenario, seed, method="random")


def _unscored(pool: Pool, scenario: Scenario, seed: int) -> Sequence[int]:
    return _selected(replace(pool, scores=np.zeros(len(pool.texts))), scenario, seed, method="dpp", score_floor=0.0)


def _mmr(pool: Pool, scenario: Scenario, seed: int) -> Sequence[int]:
    return pyversity.diversify(pool.rows, pool.scores, scenario.k, "mmr", diversity=0.5).indices.tolist()


def _by(method: str, floor: float, weight: float = 1.0, **options: Any) -> Keeps:
    return partial(_selected, method=method, score_floor=floor, diversity_lambda=weight, **options)


METHODS: Mapping[str, Keeps] = {
    ALL: partial(_selected, method="all"),
    EQUAL_COST: _equal_cost,
    FILTER: _filtered,
    "random": _random,
    "top_k": _by("top_k", 0.0),
    "two_step, no floor": _by("two_step", 0.0),
    "two_step": _by("two_step", FLOOR),
    "two_step x1.5": _by("two_step", 0.0, overcluster=1.5),
    **{f"diverse {weight:g}, no floor": _by("diverse", 0.0, weight) for weight in LAMBDAS},
    **{f"diverse {weight:g}": _by("diverse", FLOOR, weight) for weight in (0.3, 1.0, 3.0)},
    "diverse 0.3, sum": _by("diverse", 0.0, 0.3, penalty="sum"),
    "dpp, no floor": _by("dpp", 0.0),
    "dpp": _by("dpp", FLOOR),
    "dpp, no scores": _unscored,
    "facility_location, no floor": _by("facility_location", 0.0),
    "facility_location": _by("facility_location", FLOOR),
    "k_center, no floor": _by("k_center", 0.0),
    "k_center": _by("k_center", FLOOR),
    **({"mmr (pyversity)": _mmr} if pyversity else {}),
    "auto, no labels": partial(_selected, method="auto", told=False),
    "auto": partial(_selected, method="auto"),
    "auto, slice by slice": _slice_by_slice,
    "auto, slices beside": partial(_slice_by_slice, with_others=True),
    "auto, no scores": _by_form(partial(_selected, method="auto")),
    "auto, slice by slice, no scores": _by_form(_slice_by_slice),
    "auto, slices beside, no scores": _by_form(partial(_slice_by_slice, with_others=True)),
}
