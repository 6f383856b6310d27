import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.selection.greedy_picks import diverse_picks, k_center_picks
from backend.domain.selection.lazy_greedy import GridRows, distance_steps
from backend.domain.selection.linkage.clustering import Floats, Ints, Rows

WEIGHTS = st.sampled_from([0.0, 0.1, 0.3, 1.0, 3.0, 1e9, math.inf])
PENALTIES = st.sampled_from(["nearest", "sum"])


@st.composite
def pools(draw: st.DrawFn, n_max: int = 12) -> tuple[Rows, Floats]:
    """Unit rows on a coarse grid, so that duplicates, opposite rows and zero rows are common; scores with ties, best
    first."""
    n, d = draw(st.integers(0, n_max)), draw(st.integers(1, 4))
    coordinate = st.integers(-2, 2)
    rows = np.array(draw(st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=n, max_size=n)), dtype=float)
    rows = rows.reshape(n, d)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    gains = sorted(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), reverse=True)
    return rows / np.where(lengths > 0, lengths, 1.0), np.array(gains, dtype=float) / 4


def crowded_pool(n: int, d: int, seed: int) -> tuple[Rows, Floats]:
    """float32 rows in groups, a tenth of them exact copies."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n // 8 + 1, d))[rng.integers(0, n // 8 + 1, n)] + 0.4 * rng.standard_normal((n, d))
    copies = rng.integers(0, n, n // 10)
    rows[rng.integers(0, n, n // 10)] = rows[copies]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), np.sort(np.round(rng.random(n), 2))[::-1].copy()


def steps_between(rows: Rows) -> Floats:
    """Cosine distances in millionths, exact, of every pair."""
    on_grid = GridRows(rows)[np.arange(len(rows))]
    return distance_steps(on_grid @ on_grid.T)


def picked_by_definition(rows: Rows, gains: Floats, k: int, weight: float, penalty: str, apart: float) -> list[int]:
    """One pick at a time, every gain from scratch, in exact arithmetic."""
    steps = steps_between(rows)
    picks: list[int] = []

    def cost(i: int) -> Fraction:
        if penalty == "sum":
            terms = [round(Fraction(2**30) * Fraction(1_000_000 / (1_000_000 + steps[i, j]) - 1 / 3)) for j in picks]
            return Fraction(sum(terms), 2**30)
        near = [
            max(Fraction(1_000_000) - int(steps[i, j]), Fraction(0)) / (1_000_000 + int(steps[i, j])) for j in picks
        ]
        return Fraction(float(max(near, default=Fraction(0))))

    while len(picks) < k:
        left = [i for i in range(len(rows)) if i not in picks and all(steps[i, j] >= apart * 1e6 for j in picks)]
        if not left:
            break
        worth = {i: (-float(cost(i)) if math.isinf(weight) else gains[i] - weight * float(cost(i))) for i in left}
        picks.append(max(left, key=lambda i: (worth[i], -i)))
    return picks


@settings(deadline=None)
@given(pools(), st.integers(0, 14), WEIGHTS, PENALTIES, st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_each_pick_is_the_greatest_gain_of_the_definition(
    pool: tuple[Rows, Floats], k: int, weight: float, penalty: str, apart: float
) -> None:
    rows, gains = pool
    picks = diverse_picks(rows, gains, k, weight=weight, penalty=penalty, min_distance=apart)
    assert picks.dtype == np.int64
    assert picks.tolist() == picked_by_definition(rows, gains, k, weight, penalty if weight else "nearest", apart)


@settings(deadline=None)
@given(pools(), st.integers(0, 14), WEIGHTS, PENALTIES, st.integers(1, 4), st.sampled_from([0.0, 0.3]))
def test_a_panel_of_any_size_gives_the_same_picks(
    pool: tuple[Rows, Floats], k: int, weight: float, penalty: str, panel: int, apart: float
) -> None:
    rows, gains = pool
    options = {"weight": weight, "penalty": penalty, "min_distance": apart}
    whole = diverse_picks(rows, gains, k, **options, panel_size=len(rows) + 1)
    assert diverse_picks(rows, gains, k, **options, panel_size=panel).tolist() == whole.tolist()


@pytest.mark.parametrize("penalty", ["nearest", "sum"])
@pytest.mark.parametrize("weight", [0.3, 1.0, math.inf])
def test_lazy_and_plain_greedy_agree_on_a_pool_above_the_small_ones(weight: float, penalty: str) -> None:
    rows, gains = crowded_pool(1_500, 24, seed=3)
    lazy = diverse_picks(rows, gains, 500, weight=weight, penalty=penalty)
    plain = diverse_picks(rows, gains, 500, weight=weight, penalty=penalty, panel_size=1_500)
    assert lazy.tolist() == plain.tolist()
    assert len(set(lazy.tolist())) == 500


@settings(deadline=None)
@given(pools(), st.integers(0, 14), PENALTIES)
def test_weight_zero_is_exactly_top_k(pool: tuple[Rows, Floats], k: int, penalty: str) -> None:
    rows, gains = pool
    picks = diverse_picks(rows, gains, k, weight=0.0, penalty=penalty)
    assert picks.tolist() == list(range(min(k, len(rows))))


@settings(deadline=None)
@given(pools(), st.integers(0, 14))
def test_an_infinite_weight_is_farthest_first_and_ignores_scores(pool: tuple[Rows, Floats], k: int) -> None:
    rows, gains = pool
    picks = diverse_picks(rows, gains, k, weight=math.inf)
    assert picks.tolist() == k_center_picks(rows, k).tolist()
    distance = np.minimum(steps_between(rows), 1_000_000)  # beyond a right angle all are equally far
    for m in range(1, len(picks)):
        to_nearest = distance[:, picks[:m]].min(axis=1)
        left = np.setdiff1d(np.arange(len(rows)), picks[:m])
        assert picks[m] == left[to_nearest[left].argmax()]


@settings(deadline=None)
@given(pools(n_max=9), st.integers(1, 4))
def test_k_center_is_within_twice_the_best_radius(pool: tuple[Rows, Floats], k: int) -> None:
    rows, _ = pool
    chord = np.sqrt(2 * np.minimum(steps_between(rows), 1_000_000) / 1e6)
    np.fill_diagonal(chord, 0.0)

    def radius(centers: Ints) -> float:
        return float(chord[:, centers].min(axis=1).max())

    if k >= len(rows):
        assert sorted(k_center_picks(rows, k).tolist()) == list(range(len(rows)))
        return
    best = min(radius(np.array(centers)) for centers in itertools.combinations(range(len(rows)), k))
    assert radius(k_center_picks(rows, k)) <= 2 * best + 2e-3  # sqrt(2 * 1e-6): the quantum of distances


@settings(deadline=None)
@given(pools(), WEIGHTS, PENALTIES, st.floats(0.01, 2.0))
def test_a_minimum_distance_holds_and_only_it_leaves_seats_empty(
    pool: tuple[Rows, Floats], weight: float, penalty: str, apart: float
) -> None:
    rows, gains = pool
    picks = diverse_picks(rows, gains, len(rows), weight=weight, penalty=penalty, min_distance=apart)
    steps = steps_between(rows)
    assert all(steps[i, j] >= apart * 1e6 for i, j in itertools.combinations(picks.tolist(), 2))
    for row in set(range(len(rows))) - set(picks.tolist()):
        assert (steps[row, picks] < apart * 1e6).any()


@pytest.mark.parametrize("penalty", ["nearest", "sum"])
@pytest.mark.parametrize("weight", [0.0, 1.0, 1e308, math.inf])
def test_identical_rows_come_in_canonical_order(weight: float, penalty: str) -> None:
    rows = np.tile([0.6, 0.8], (5, 1))
    assert diverse_picks(rows, np.zeros(5), 5, weight=weight, penalty=penalty).tolist() == [0, 1, 2, 3, 4]


def test_zero_rows_are_at_a_right_angle_to_everything() -> None:
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert k_center_picks(rows, 4).tolist() == [0, 2, 3, 1]


def test_the_pair_sum_takes_an_outlier_with_its_twin() -> None:
    """The weakness its docstring names; the nearest-pick penalty does not have it."""
    angles = np.linspace(0.0, 0.3, 6)
    near = np.column_stack([np.cos(angles), np.sin(angles)])
    rows = np.vstack([near, [[-1.0, 0.0], [-1.0, 0.0]]])
    gains = np.linspace(1, 0, 8)
    assert {6, 7} <= set(diverse_picks(rows, gains, 4, weight=math.inf, penalty="sum").tolist())
    assert not {6, 7} <= set(diverse_picks(rows, gains, 4, weight=math.inf).tolist())


@given(st.integers(0, 10_000), st.sampled_from([np.float32, np.float64]))
def test_cosines_are_the_same_bits_in_whatever_order_they_are_summed(seed: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((40, 384))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)
    on_grid, shuffle = GridRows(rows)[np.arange(40)], rng.permutation(384)
    cosines = on_grid @ on_grid.T
    assert (on_grid[:, shuffle] @ on_grid[:, shuffle].T == cosines).all()
    assert (np.stack([on_grid @ row for row in on_grid]) == cosines).all()
    assert np.abs(cosines - rows.astype(float) @ rows.astype(float).T).max() < 1e-7
