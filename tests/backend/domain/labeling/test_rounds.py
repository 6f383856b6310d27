import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.linear_head import Flags, Floats, Ints
from backend.domain.labeling.neighbourhoods import densities
from backend.domain.labeling.rounds import Picks, RoundPool, Why, next_rows, random_order, start_rows
from backend.domain.selection.linkage.clustering import Rows
from tests.backend.domain.labeling.test_linear_head import clusters
from tests.backend.domain.selection.test_facility_location import similarities
from tests.backend.domain.selection.test_greedy_picks import pools


def pool_of(rows: Rows, groups: Ints | None = None) -> RoundPool:
    keys = [f"row {i}" for i in range(len(rows))]
    exact = rows.astype(np.float64)
    numbers = np.arange(len(rows)) if groups is None else groups
    return RoundPool(rows=exact, keys=keys, groups=numbers, density=densities(exact))


def reordered(pool: RoundPool, order: Ints) -> RoundPool:
    return RoundPool(
        rows=pool.rows[order],
        keys=[pool.keys[i] for i in order],
        groups=pool.groups[order],
        density=pool.density[order],
    )


def by_why(picks: Picks, why: Why) -> list[int]:
    return [row for row, reason in zip(picks.rows.tolist(), picks.why, strict=True) if reason is why]


def unsure(n: int, n_labels: int, seed: int) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.ones(n_labels), n)


@given(pools(n_max=20), st.integers(-1, 25), st.integers(0, 3), st.data())
def test_any_pool_has_a_start_of_k_rows(pool: tuple[Rows, Floats], k: int, seed: int, data: st.DataObject) -> None:
    n = len(pool[0])
    groups = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), dtype=np.int64)
    near = np.array(data.draw(st.lists(st.integers(0, max(n - 1, 0)), max_size=3 if n else 0)), dtype=np.int64)
    picks = start_rows(pool_of(pool[0], groups), k, seed=seed, near=near)
    assert len(picks.rows) == len(set(picks.rows.tolist())) == len(picks.why) == max(0, min(k, n))
    assert set(list(dict.fromkeys(near.tolist()))[: max(k, 0)]) <= set(picks.rows.tolist())


@given(pools(n_max=20), st.integers(-1, 25), st.integers(0, 3), st.data())
def test_any_pool_has_a_round_of_open_rows(pool: tuple[Rows, Floats], m: int, seed: int, data: st.DataObject) -> None:
    n = len(pool[0])
    groups = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), dtype=np.int64)
    is_open: Flags = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=np.bool_)
    n_labels = data.draw(st.integers(1, 4))
    n_by_label = np.array(data.draw(st.lists(st.integers(0, 7), min_size=n_labels, max_size=n_labels)))
    probabilities = unsure(n, n_labels, seed)
    picks = next_rows(pool_of(pool[0], groups), probabilities, is_open, m, n_by_label=n_by_label, seed=seed)
    assert len(picks.rows) == len(set(picks.rows.tolist())) == len(picks.why) == max(0, min(m, is_open.sum()))
    assert is_open[picks.rows].all()
    new = set(groups[is_open].tolist()) - set(groups[~is_open].tolist())
    assert len(new & set(groups[picks.rows].tolist())) >= min(len(picks.rows), len(new))


@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_the_rows_changes_a_pick(seed: int) -> None:
    rows, _ = clusters(300, 24, 6, seed)
    rows[100:120] = rows[:20]  # equal rows under other keys
    pool = RoundPool.of(rows, [f"row {i}" for i in range(300)])
    order = np.random.default_rng(seed).permutation(300)
    other = RoundPool.of(rows[order], [pool.keys[i] for i in order])
    assert np.array_equal(other.density, pool.density[order])
    here, there = start_rows(pool, 40, seed=seed), start_rows(other, 40, seed=seed)
    assert (order[there.rows].tolist(), there.why) == (here.rows.tolist(), here.why)
    is_open, probabilities, n_by_label = np.ones(300, dtype=bool), unsure(300, 6, seed), np.array([9, 9, 3, 9, 9, 0])
    is_open[here.rows] = False
    one = next_rows(pool, probabilities, is_open, 50, n_by_label=n_by_label, seed=seed)
    two = next_rows(other, probabilities[order], is_open[order], 50, n_by_label=n_by_label, seed=seed)
    assert (order[two.rows].tolist(), two.why) == (one.rows.tolist(), one.why)
    assert next_rows(pool, probabilities, is_open, 50, n_by_label=n_by_label, seed=seed).rows.tolist() == (
        one.rows.tolist()
    )
    assert set(one.why) == {Why.UNCERTAIN, Why.RARE, Why.RANDOM}


@given(st.integers(0, 10_000), st.integers(5, 9), st.integers(1, 2))
def test_the_start_covers_groups_by_their_size(seed: int, n: int, k: int) -> None:
    """The greedy start is within 1 - 1/e of the best k rows, with every group as heavy as it is large."""
    rows, _ = clusters(n, 4, 3, seed)
    pool = pool_of(rows, np.arange(n) % 5)
    firsts = [int(max(np.flatnonzero(pool.groups == g), key=lambda i: pool.density[i])) for g in range(5)]
    near = similarities(rows)[np.ix_(firsts, firsts)]

    def value(chosen: tuple[int, ...]) -> float:
        return float((np.bincount(pool.groups) * near[list(chosen)].max(axis=0)).sum())

    best = max(value(chosen) for chosen in itertools.combinations(range(5), k))
    picks = start_rows(pool, k, seed=0)  # so few that none is drawn
    assert value(tuple(firsts.index(row) for row in picks.rows.tolist())) >= (1 - 1 / np.e) * best


def test_a_large_group_is_covered_before_small_ones() -> None:
    rows = np.eye(4)[[0, 1, 2, 2, 2, 3]].astype(float)
    picks = start_rows(pool_of(rows, np.array([0, 1, 2, 2, 2, 3])), 2, seed=1)
    assert picks.rows[0] in {2, 3, 4}
    assert len(set(rows[picks.rows].argmax(axis=1).tolist())) == 2


def test_what_is_near_to_a_random_row_is_covered_already() -> None:
    rows, _ = clusters(100, 24, 5, seed=1)
    pool = pool_of(rows, np.arange(100))
    picks = start_rows(pool, 10, seed=3)
    assert [why is Why.RANDOM for why in picks.why] == [True] * 2 + [False] * 8
    cosines = np.maximum(rows @ rows.T, 0)
    covered = cosines[by_why(picks, Why.RANDOM)].max(axis=0)
    added = np.maximum(cosines - covered, 0).sum(axis=1)
    added[np.argsort(pool.density)[:2]] = 0
    assert added[picks.rows[2]] == pytest.approx(added.max(), rel=1e-4)


def test_far_outliers_come_last() -> None:
    rows, _ = clusters(100, 24, 3, seed=1)
    rows[40], rows[50] = -rows[0], 0.0
    pool = pool_of(rows)
    without = start_rows(pool, 98, seed=2)
    assert not {40, 50} & set(by_why(without, Why.START))
    assert {40, 50} <= set(start_rows(pool, 100, seed=2).rows.tolist())


def test_near_duplicates_come_after_every_group() -> None:
    rows, _ = clusters(120, 24, 4, seed=5)
    pool = pool_of(rows, np.arange(120) // 3)
    assert len(set(pool.groups[start_rows(pool, 40, seed=0).rows].tolist())) == 40
    assert len(start_rows(pool, 100, seed=0).rows) == 100


def test_the_random_share_is_one_order_that_the_keys_decide() -> None:
    keys = [f"row {i}" for i in range(200)]
    order = random_order(keys, 7)
    assert sorted(order.tolist()) == list(range(200))
    assert random_order(keys, 8).tolist() != order.tolist()
    assert [keys[::-1][i] for i in random_order(keys[::-1], 7)] == [keys[i] for i in order]
    rows, _ = clusters(200, 24, 4, seed=6)
    pool = pool_of(rows)
    start = start_rows(pool, 50, seed=7)
    assert by_why(start, Why.RANDOM) == order[:10].tolist()
    is_open = np.ones(200, dtype=bool)
    is_open[start.rows] = False
    later = next_rows(pool, unsure(200, 4, 1), is_open, 50, n_by_label=np.full(4, 20), seed=7)
    assert by_why(later, Why.RANDOM) == [row for row in order.tolist() if is_open[row]][:10]


def test_every_row_is_drawn_about_as_often() -> None:
    keys = [f"row {i}" for i in range(20)]
    drawn = Counter(row for seed in range(1_000) for row in random_order(keys, seed)[:5].tolist())
    assert all(abs(drawn[row] - 250) < 70 for row in range(20))  # five standard deviations


def test_the_least_sure_rows_are_taken_dense_ones_first() -> None:
    rows, _ = clusters(200, 24, 2, seed=8)
    pool = pool_of(rows)
    sure = np.linspace(0.5, 1.0, 200)
    probabilities = np.stack([sure, 1 - sure], axis=1)
    picks = next_rows(pool, probabilities, np.ones(200, dtype=bool), 10, n_by_label=np.full(2, 50), seed=0)
    assert Counter(picks.why) == {Why.RANDOM: 2, Why.UNCERTAIN: 8}
    score = (2 - 2 * sure) * pool.density
    score[by_why(picks, Why.RANDOM)] = -1
    assert set(by_why(picks, Why.UNCERTAIN)) <= set(np.argsort(-score)[:24].tolist())


def test_one_of_equal_rows_is_enough() -> None:
    rows, _ = clusters(100, 24, 4, seed=9)
    rows[50:] = rows[0]
    pool = RoundPool.of(rows, [f"row {i}" for i in range(100)])
    probabilities = np.full((100, 2), 0.5)
    picks = next_rows(pool, probabilities, np.ones(100, dtype=bool), 20, n_by_label=np.full(2, 50), seed=0)
    assert len(set(pool.groups[picks.rows].tolist())) == min(20, len(set(pool.groups.tolist())))


def test_rare_labels_are_looked_for_where_they_are_likely() -> None:
    rows, _ = clusters(200, 24, 3, seed=10)
    probabilities = np.tile([0.9, 0.095, 0.005], (200, 1))
    probabilities[[3, 4, 5]] = [0.2, 0.2, 0.6]
    n_by_label = np.array([60, 4, 1])
    picks = next_rows(pool_of(rows), probabilities, np.ones(200, dtype=bool), 40, n_by_label=n_by_label, seed=0)
    looked_for = by_why(picks, Why.RARE)
    drawn = by_why(picks, Why.RANDOM)
    assert {3, 4, 5} <= set(looked_for) | set(drawn)
    assert len(looked_for) == 1 + 3 - len({3, 4, 5} & set(drawn))  # one more of label 1; nothing else may be label 2
    few = next_rows(
        pool_of(rows), np.full((200, 3), 1 / 3), np.ones(200, dtype=bool), 10, n_by_label=n_by_label, seed=0
    )
    assert Counter(few.why)[Why.RARE] == 2


@pytest.mark.parametrize("n", [1, 40])
def test_small_pools_are_taken_whole(n: int) -> None:
    rows, _ = clusters(n, 8, 1, seed=11)
    pool = RoundPool.of(rows, [f"row {i}" for i in range(n)])
    assert sorted(start_rows(pool, 100, seed=0).rows.tolist()) == list(range(n))
    picks = next_rows(pool, np.ones((n, 1)), np.ones(n, dtype=bool), 100, n_by_label=np.array([0]), seed=0)
    assert sorted(picks.rows.tolist()) == list(range(n))
