"""Where the thresholds of `cluster_gap` come from: each one varied by itself, the others as they are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from backend.domain.selection import cluster_gap
from backend.domain.selection.cluster_gap import Severity
from tests.bench.selection_gap_counts import Trees, kolm, severity_at
from tests.bench.selection_gap_pools import Case

COUNTING = {
    "NEAR_BEST": (0.93, 0.94, 0.95, 0.96, 0.97),
    "JOIN_WEIGHT": (0.0, 0.1, 0.2, 0.25, 0.3, 0.4),
    "ONE_CLUSTER_REACH": (0.3, 0.35, 0.4, 0.42, 0.45, 0.5, 0.6),
}
WARNING = {"GAP_RATIO": (0.0, 0.5, 0.6, 0.7, 0.8), "GAP_FACTOR": (1.5, 2, 3, 1_000)}

Draw = tuple[Case, tuple[int, ...], Trees]


def print_sweeps(draws: Sequence[Draw]) -> None:
    columns = list(dict.fromkeys(case.name for case, _, _ in draws))
    for name, values in COUNTING.items():
        print(f"\n| {name} | {' | '.join(columns)} |\n{'|---' * (len(columns) + 1)}|")
        for value in values:
            with _set(name, value):
                right = _exact(draws)
            print(f"| {value} | {' | '.join(f'{right[column]:.3f}' for column in columns)} |")
    print("\nPools that warn at K = N/3, at twice the truth, at the truth")
    for name, values in WARNING.items():
        print(f"\n| {name} | {' | '.join(columns)} |\n{'|---' * (len(columns) + 1)}|")
        for value in values:
            with _set(name, value):
                warned = _warned(draws)
            print(f"| {value} | {' | '.join(warned[column] for column in columns)} |")


@contextmanager
def _set(name: str, value: float) -> Iterator[None]:
    before = getattr(cluster_gap, name)
    setattr(cluster_gap, name, value)
    try:
        yield
    finally:
        setattr(cluster_gap, name, before)


@contextmanager
def _known(trees: Trees) -> Iterator[None]:
    """Ward's tree and the silhouettes, which no threshold changes, are not computed again."""
    before = cluster_gap.linkage_of, cluster_gap.silhouettes_by_k
    cluster_gap.linkage_of = lambda _rows, _linkage: trees.ward
    cluster_gap.silhouettes_by_k = lambda _rows, tree, k: (trees.of_ward if tree is trees.ward else trees.of_average)[
        : k - 1
    ]
    try:
        yield
    finally:
        cluster_gap.linkage_of, cluster_gap.silhouettes_by_k = before


def _exact(draws: Sequence[Draw]) -> dict[str, float]:
    right = defaultdict(list)
    for case, sizes, trees in draws:
        with _known(trees):
            right[case.name].append(kolm(trees) == len(sizes))
    return {name: float(np.mean(hits)) for name, hits in right.items()}


def _warned(draws: Sequence[Draw]) -> dict[str, str]:
    warned: dict[str, list[list[bool]]] = defaultdict(list)
    for case, sizes, trees in draws:
        ks = [trees.k_max]
        if case.kind in {"mode", "intent"}:
            ks += [min(2 * len(sizes), trees.k_max), len(sizes)]
        with _known(trees):
            warned[case.name].append([severity_at(trees, k) is not Severity.NONE for k in ks])
    return {name: " ".join(f"{share:.2f}" for share in np.mean(rows, axis=0)) for name, rows in warned.items()}
