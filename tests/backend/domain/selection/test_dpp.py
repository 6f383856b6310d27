import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from backend.domain.errors import InvalidInput
from backend.domain.selection.dpp import QUALITY_SCALE, SPENT, dpp_map_picks, k_dpp_sample
from backend.domain.selection.linkage.clustering import Floats, Ints, Rows
from tests.backend.domain.selection.test_greedy_picks import crowded_pool, pools, steps_between

EQUAL = 2e-6  # gains in log determinant closer than this are the same to the picks


def kernel_of(rows: Rows) -> Floats:
    kernel = 1.0 / (2.0 - rows.astype(float) @ rows.astype(float).T)
    np.fill_diagonal(kernel, 1.0)
    return kernel


def log_quality(gains: Floats, weight: float) -> Floats:
    if math.isinf(weight) or gains.std() == 0:
        return np.zeros(len(gains))
    return QUALITY_SCALE / weight * (gains - gains.mean()) / gains.std()


def gains_by_determinant(rows: Rows, gains: Floats, weight: float, picks: list[int]) -> Floats:
    """What each row would add to log det L, from determinants of whole matrices. Picks that those before them span add
    `SPENT`, and nothing to the span."""
    kernel, spanning = kernel_of(rows), list[int]()
    for pick in picks:
        if variance(kernel, spanning, pick) > 1e-4:
            spanning.append(pick)
    variances = np.array([variance(kernel, spanning, i) for i in range(len(rows))])
    return 2 * log_quality(gains, weight) + np.log(np.maximum(variances, SPENT))


def variance(kernel: Floats, picks: list[int], row: int) -> float:
    both = [*picks, row]
    return float(np.linalg.det(kernel[np.ix_(both, both)]) / np.linalg.det(kernel[np.ix_(picks, picks)]))


@settings(deadline=None)
@given(pools(n_max=9), st.integers(0, 11), st.sampled_from([0.05, 0.3, 1.0, 3.0, math.inf]))
def test_each_pick_multiplies_the_determinant_most(pool: tuple[Rows, Floats], k: int, weight: float) -> None:
    rows, gains = pool
    picks = dpp_map_picks(rows, gains, k, weight=weight).tolist()
    assert len(picks) == len(set(picks)) == min(k, len(rows))
    for m, pick in enumerate(picks):
        adds = gains_by_determinant(rows, gains, weight, picks[:m])
        left = np.setdiff1d(np.arange(len(rows)), picks[:m])
        assert adds[pick] >= adds[left].max() - EQUAL
        # of equals, the lowest: anything clearly as good and earlier would have been taken
        assert not any(i < pick and adds[i] > adds[pick] + EQUAL for i in left)


@settings(deadline=None)
@given(pools(), st.integers(0, 14))
def test_weight_zero_is_exactly_top_k_and_a_tiny_weight_too(pool: tuple[Rows, Floats], k: int) -> None:
    rows, gains = pool
    gains = np.linspace(1, 0, len(rows))
    for weight in (0.0, 1e-6):
        assert dpp_map_picks(rows, gains, k, weight=weight).tolist() == list(range(min(k, len(rows))))


@settings(deadline=None)
@given(pools(), st.integers(0, 14))
def test_an_infinite_weight_ignores_scores(pool: tuple[Rows, Floats], k: int) -> None:
    rows, gains = pool
    with_scores = dpp_map_picks(rows, gains, k, weight=math.inf)
    assert with_scores.tolist() == dpp_map_picks(rows, np.zeros(len(rows)), k, weight=1.0).tolist()


@settings(deadline=None)
@given(
    pools(), st.integers(0, 14), st.sampled_from([0.3, 1.0, math.inf]), st.integers(1, 4), st.sampled_from([0.0, 0.3])
)
def test_a_panel_of_any_size_gives_the_same_picks(
    pool: tuple[Rows, Floats], k: int, weight: float, panel: int, apart: float
) -> None:
    rows, gains = pool
    whole = dpp_map_picks(rows, gains, k, weight=weight, min_distance=apart, panel_size=len(rows) + 1)
    by_panels = dpp_map_picks(rows, gains, k, weight=weight, min_distance=apart, panel_size=panel)
    assert by_panels.tolist() == whole.tolist()


@pytest.mark.parametrize("weight", [1.0, math.inf])
def test_lazy_and_plain_greedy_agree_far_past_the_width_of_the_rows(weight: float) -> None:
    rows, gains = crowded_pool(1_200, 24, seed=5)
    lazy = dpp_map_picks(rows, gains, 400, weight=weight)
    assert lazy.tolist() == dpp_map_picks(rows, gains, 400, weight=weight, panel_size=1_200).tolist()


def test_picks_past_k_equal_to_the_width_still_span_volume_and_have_no_copy() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((80, 4))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.vstack([rows, rows[:20]])  # twenty copies, which would add nothing
    picks = dpp_map_picks(rows, np.linspace(1, 0, 100), 24, weight=1.0)
    assert (picks < 80).all()
    sign, log_det = np.linalg.slogdet(kernel_of(rows[picks]))
    assert sign == 1
    random_log_dets = [np.linalg.slogdet(kernel_of(rows[rng.choice(80, 24, replace=False)]))[1] for _ in range(200)]
    assert log_det > max(random_log_dets)


@settings(deadline=None)
@given(pools(), st.sampled_from([0.0, 1.0, math.inf]), st.floats(0.01, 2.0))
def test_a_minimum_distance_holds_and_only_it_leaves_seats_empty(
    pool: tuple[Rows, Floats], weight: float, apart: float
) -> None:
    rows, gains = pool
    picks = dpp_map_picks(rows, gains, len(rows), weight=weight, min_distance=apart)
    steps = steps_between(rows)
    assert all(steps[i, j] >= apart * 1e6 for i, j in itertools.combinations(picks.tolist(), 2))
    for row in set(range(len(rows))) - set(picks.tolist()):
        assert (steps[row, picks] < apart * 1e6).any()


@pytest.mark.parametrize("weight", [0.0, 1e-300, 1.0, 1e300, math.inf])
def test_identical_rows_come_in_canonical_order(weight: float) -> None:
    rows = np.tile([0.6, 0.8], (5, 1))
    assert dpp_map_picks(rows, np.linspace(1, 0, 5), 5, weight=weight).tolist() == [0, 1, 2, 3, 4]


def test_copies_come_after_everything_else() -> None:
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert dpp_map_picks(rows, np.zeros(5), 5, weight=1.0).tolist()[-1] == 1


def test_more_than_can_be_held_is_refused_by_name() -> None:
    rows = np.zeros((20_001, 1))
    with pytest.raises(InvalidInput, match="20,001 x 10,000 are more than 200,000,000") as refused:
        dpp_map_picks(rows, np.zeros(20_001), 10_000, weight=1.0)
    assert refused.value.code == "too_many_candidates"


def six_rows() -> tuple[Rows, Floats]:
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((6, 3)) + 1.0
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), np.array([1.0, 0.9, 0.6, 0.5, 0.2, 0.0])


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("weight", [0.2, 1.0, math.inf])
def test_draws_have_the_frequencies_of_their_determinants(k: int, weight: float) -> None:
    rows, gains = six_rows()
    quality = np.exp(log_quality(gains, weight))
    kernel = quality[:, None] * kernel_of(rows) * quality
    subsets = list(itertools.combinations(range(6), k))
    chances = np.array([np.linalg.det(kernel[np.ix_(s, s)]) for s in subsets])
    n_draws = 2_000
    drawn = Counter(tuple(k_dpp_sample(rows, gains, k, weight=weight, seed=seed).tolist()) for seed in range(n_draws))
    expected = n_draws * chances / chances.sum()
    seen = np.array([drawn[s] for s in subsets])
    assert seen.sum() == n_draws
    often = expected >= 20  # chi-square needs full cells: the rare ones are counted with the least of the others
    least = np.flatnonzero(often)[expected[often].argmin()]
    for counts in (seen, expected):
        counts[least] += counts[~often].sum()
    assert chisquare(seen[often], expected[often]).pvalue > 1e-3


@given(pools(n_max=8), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_a_draw_is_repeatable_has_k_rows_and_never_a_copy(pool: tuple[Rows, Floats], k: int, seed: int) -> None:
    rows, gains = pool
    n_different = len(np.unique(rows[rows.any(axis=1)], axis=0)) + int((~rows.any(axis=1)).sum())
    if min(k, len(rows)) > n_different:
        with pytest.raises(InvalidInput, match="of the rows are independent"):
            k_dpp_sample(rows, gains, k, weight=1.0, seed=seed)
        return
    drawn = k_dpp_sample(rows, gains, k, weight=1.0, seed=seed)
    assert drawn.tolist() == k_dpp_sample(rows, gains, k, weight=1.0, seed=seed).tolist()
    assert len(drawn) == len(set(drawn.tolist())) == min(k, len(rows))
    steps = steps_between(rows)
    assert all(steps[i, j] > 0 for i, j in itertools.combinations(drawn.tolist(), 2))


def test_what_cannot_be_drawn_is_refused_by_name() -> None:
    rows: Rows = np.eye(3)
    gains: Floats = np.zeros(3)
    with pytest.raises(InvalidInput, match="at most 2,000 candidates; there are 2,001"):
        k_dpp_sample(np.ones((2_001, 1)), np.zeros(2_001), 5, weight=1.0, seed=0)
    with pytest.raises(InvalidInput, match="above 0"):
        k_dpp_sample(rows, gains, 2, weight=0.0, seed=0)
    nothing: Ints = k_dpp_sample(rows, gains, 0, weight=1.0, seed=0)
    assert len(nothing) == 0
