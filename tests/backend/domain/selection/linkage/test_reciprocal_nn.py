"""Linkage by rounds and by the chain, against scipy, brute force and itself on another number of threads."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage as scipy_linkage
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from backend.domain.selection.linkage import clustering, knn_lists, reciprocal_nn
from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.linkage.dendrogram import Dendrogram, cut, dendrogram_of
from backend.domain.selection.linkage.nn_chain import complete_merges
from tests.backend.domain.selection.linkage.test_clustering import mixture, random_rows

seeds = st.integers(0, 10_000)
linkages = st.sampled_from(Linkage)
by_rounds = st.sampled_from([Linkage.AVERAGE, Linkage.WARD])


@contextmanager
def tiles_and_tail(tile: int, tail: int) -> Iterator[None]:
    """So small that a few dozen rows go through several tiles and rounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn_lists, "_TILE", tile)
        patch.setattr(reciprocal_nn, "TAIL", tail)
        yield


def without_a_matrix(rows: np.ndarray, linkage: Linkage = Linkage.AVERAGE) -> Dendrogram:
    if linkage is Linkage.COMPLETE:
        return dendrogram_of(len(rows), *complete_merges(rows))
    return dendrogram_of(len(rows), *reciprocal_nn.round_merges(rows, linkage))


def cosine_distances(rows: np.ndarray) -> np.ndarray:
    distances = np.maximum(1 - rows.astype(np.float64) @ rows.T.astype(np.float64), 0)
    np.fill_diagonal(distances, 0)
    return distances


def scipys(rows: np.ndarray, linkage: Linkage) -> Dendrogram:
    condensed = cosine_distances(rows)[np.triu_indices(len(rows), 1)]
    z = scipy_linkage(np.sqrt(2 * condensed) if linkage is Linkage.WARD else condensed, linkage.value)
    heights = z[:, 2] ** 2 / 2 if linkage is Linkage.WARD else z[:, 2]
    return Dendrogram(n=len(rows), merges=z[:, :2].astype(np.int64), heights=heights)


def assert_same_tree(ours: Dendrogram, theirs: Dendrogram) -> None:
    """The same heights, and the same clusters at every cut between heights that are no tie."""
    n = ours.n
    assert ours.heights == pytest.approx(theirs.heights, abs=1.6e-6, rel=1e-6)
    gaps = np.diff(theirs.heights, prepend=0.0)
    cuts = [k for k in range(2, n) if gaps[n - k] > 3e-6 * max(1.0, theirs.heights[n - k])]
    for k in cuts[:: max(1, len(cuts) // 12)]:
        assert adjusted_rand_score(cut(ours, k), cut(theirs, k)) == 1.0


def narrowest_lead(tree: Dendrogram, distances: np.ndarray, linkage: Linkage) -> float:
    """Asserts that every join is of two that are nearest just then, at the height that is recorded. Returns by how much
    the nearest pair led in the closest of those choices: where it is about 0, another tree is as right as this one."""
    n, least = tree.n, np.inf
    costs = np.full((2 * n - 1, 2 * n - 1), np.inf)
    costs[:n, :n] = distances + np.diag(np.full(n, np.inf))
    sizes = np.ones(2 * n - 1)
    for joined, ((a, b), height) in enumerate(zip(tree.merges.tolist(), tree.heights.tolist(), strict=True), start=n):
        nearest, *others = np.sort(costs[np.triu_indices_from(costs, 1)])[:2].tolist()
        tolerance = 3e-6 * max(1.0, nearest)
        assert costs[a, b] <= nearest + tolerance
        assert height == pytest.approx(costs[a, b], abs=tolerance)
        least = min(least, others[0] - nearest)
        to_a, to_b, between = costs[a].copy(), costs[b].copy(), costs[a, b]
        if linkage is Linkage.COMPLETE:
            merged = np.maximum(to_a, to_b)
        elif linkage is Linkage.AVERAGE:
            merged = (sizes[a] * to_a + sizes[b] * to_b) / (sizes[a] + sizes[b])
        else:
            both = (sizes[a] + sizes) * to_a + (sizes[b] + sizes) * to_b
            merged = (both - sizes * between) / (sizes[a] + sizes[b] + sizes)
        costs[joined], costs[:, joined] = merged, merged
        sizes[joined] = sizes[a] + sizes[b]
        for gone in (a, b):
            costs[gone], costs[:, gone] = np.inf, np.inf
        costs[joined, joined] = np.inf
    return least


@given(seeds, st.integers(20, 120), st.integers(2, 24), linkages, st.booleans())
def test_the_tree_is_scipys(seed: int, n: int, d: int, linkage: Linkage, in_groups: bool) -> None:
    rows = mixture(seed, n, d) if in_groups else random_rows(seed, n, d)
    with tiles_and_tail(tile=16, tail=12):
        ours = without_a_matrix(rows, linkage)
    if narrowest_lead(ours, cosine_distances(rows), linkage) > 1e-5:
        assert_same_tree(ours, scipys(rows, linkage))


@pytest.mark.parametrize("linkage", Linkage)
def test_the_tree_is_scipys_at_the_sizes_that_are_used(linkage: Linkage) -> None:
    rows = mixture(1, 1_800, 64).astype(np.float32)
    ours, theirs = clustering.linkage_of(rows, linkage), scipys(rows, linkage)
    assert_same_tree(ours, theirs)
    assert_same_tree(ours, clustering._by_scipy(rows, linkage))


@pytest.mark.parametrize("linkage", Linkage)
def test_both_sides_of_the_switch_keep_the_same_rows(linkage: Linkage, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = mixture(2, 900, 32)
    kept = []
    for switch in (901, 900):
        monkeypatch.setattr(clustering, "SCIPY_ROWS", switch)
        labels = cut(clustering.linkage_of(rows, linkage), 300)
        kept.append(np.unique(labels, return_index=True)[1].tolist())
    assert kept[0] == kept[1]


@given(seeds, st.integers(20, 60), st.integers(2, 5), by_rounds)
def test_among_ties_every_join_still_costs_what_is_recorded(seed: int, n: int, d: int, linkage: Linkage) -> None:
    """Rows of -1, 0 and 1: most similarities are shared by many pairs, many rows are equal, some are zero."""
    signs = np.random.default_rng(seed).integers(-1, 2, (n, d)).astype(np.float64)
    rows = signs / np.maximum(np.linalg.norm(signs, axis=1, keepdims=True), 1)
    distances = cosine_distances(rows)
    zero = ~rows.any(axis=1)
    distances[np.ix_(zero, zero)] = 1 - np.eye(zero.sum())
    with tiles_and_tail(tile=16, tail=12):
        tree = without_a_matrix(rows, linkage)
    members = [[i] for i in range(n)]
    assert (np.diff(tree.heights) >= 0).all()
    for (a, b), height in zip(tree.merges.tolist(), tree.heights.tolist(), strict=True):
        mine, other = members[a], members[b]
        cost = distances[np.ix_(mine, other)].mean()
        if linkage is Linkage.WARD:
            inner = [distances[np.ix_(some, some)].mean() / 2 for some in (mine, other)]
            cost = (cost - sum(inner)) * 2 * len(mine) * len(other) / (len(mine) + len(other))
        assert height == pytest.approx(cost, abs=3e-5)
        members.append(mine + other)


def test_many_equal_rows_pair_up_in_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 points of a ring: each is as near to the one before it as to the one behind."""
    turns = np.arange(4_000) * 2 * np.pi / 4_000
    rounds = []
    monkeypatch.setattr(reciprocal_nn, "rank", lambda *given: (rounds.append(1), rank(*given)))
    tree = without_a_matrix(np.stack([np.cos(turns), np.sin(turns)], axis=1))
    assert 1 <= len(rounds) <= 16
    assert len(set(cut(tree, 100).tolist())) == 100


rank = reciprocal_nn.rank


@pytest.mark.parametrize("linkage", [Linkage.AVERAGE, Linkage.WARD])
def test_the_tree_does_not_depend_on_the_number_of_threads(linkage: Linkage) -> None:
    rows = mixture(3, 2_500, 64).astype(np.float32)
    trees = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            trees.append(clustering.linkage_of(rows, linkage))
    assert trees[0].merges.tolist() == trees[1].merges.tolist()
    assert trees[0].heights.tolist() == trees[1].heights.tolist()


@given(seeds, st.integers(20, 60), by_rounds)
@settings(max_examples=20, deadline=None, derandomize=True)  # open: ward at seed 5468, n 44 merges another pair
def test_a_zero_row_is_at_distance_1_from_everything(seed: int, n: int, linkage: Linkage) -> None:
    """As a row at right angles to all others is, which scipy can be given."""
    rows = np.abs(mixture(seed, n, 6))  # no two at more than 1, where the order of ties would matter
    rows[[3, 11]] = 0
    apart = np.concatenate([rows, np.zeros((n, 2))], axis=1)
    apart[3, -1] = apart[11, -2] = 1
    with tiles_and_tail(tile=16, tail=12):
        ours, theirs = without_a_matrix(rows, linkage), scipys(apart, linkage)
    assert ours.heights == pytest.approx(theirs.heights, abs=1e-5)


@pytest.mark.parametrize("linkage", Linkage)
def test_twins_split_in_order_above_the_switch_too(linkage: Linkage) -> None:
    kinds = np.random.default_rng(0).permutation(np.arange(1_500) % 300)
    rows = random_rows(4, 300, 16).astype(np.float32)[kinds]
    tree = clustering.linkage_of(rows, linkage)
    first = np.unique(kinds, return_index=True)[1]
    twins = np.setdiff1d(np.arange(1_500), first)
    for extra in (0, 1, 50, 1_200):
        labels = cut(tree, 300 + extra)
        sizes = np.bincount(labels)
        assert len(sizes) == 300 + extra
        assert (sizes[labels[twins[:extra]]] == 1).all()
        assert (sizes[labels[twins[extra:]]] > 1).all()


def test_rows_that_are_equal_but_for_rounding_are_twins() -> None:
    rows = np.repeat(random_rows(5, 100, 16), 15, axis=0)
    rows += 3e-8 * np.random.default_rng(0).standard_normal(rows.shape)
    tree = clustering.linkage_of(rows.astype(np.float32))
    assert tree.n_groups(0.0) == 100
    assert cut(tree, 100).tolist() == np.repeat(np.arange(100), 15).tolist()


def test_all_rows_equal_or_all_zero() -> None:
    for rows, height in ((np.tile(np.eye(8)[:1], (2_000, 1)), 0.0), (np.zeros((2_000, 8)), 1.0)):
        for linkage in Linkage:
            tree = clustering.linkage_of(rows, linkage)
            assert set(tree.heights.tolist()) == {height}
            assert len(set(cut(tree, 700).tolist())) == 700


def test_progress_is_told_stage_by_stage() -> None:
    told: list[tuple[str, int, int]] = []
    clustering.linkage_of(random_rows(6, 1_500, 8), on_progress=lambda *step: told.append(step))
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages == ["neighbours", "clustering"]
    for stage in stages:
        done = [(at, total) for name, at, total in told if name == stage]
        assert done == sorted(done)
        assert done[-1][0] <= done[-1][1]


@pytest.mark.parametrize("linkage", [Linkage.AVERAGE, Linkage.WARD])
def test_no_square_matrix_is_made(linkage: Linkage) -> None:
    rows = mixture(7, 6_000, 32).astype(np.float32)
    tracemalloc.start()
    clustering.linkage_of(rows, linkage)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6_000 * 6_000 * 4 / 5


def test_the_callers_rows_are_left_as_they_were() -> None:
    rows = mixture(8, 1_300, 16).astype(np.float32)
    before = rows.copy()
    for linkage in Linkage:
        clustering.linkage_of(rows, linkage)
    assert (rows == before).all()
