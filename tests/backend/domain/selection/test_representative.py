"""What stands for a pool: in proportion, one of each group first, outliers last."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.selection import representative
from backend.domain.selection.facility_location import facility_location_picks
from backend.domain.selection.linkage import clustering
from backend.domain.selection.linkage.clustering import Ints, Rows
from backend.domain.selection.representative import heads_of, is_far_out, representative_picks
from backend.domain.selection.select import select
from tests.backend.domain.selection.test_facility_location import similarities
from tests.backend.domain.selection.test_greedy_picks import pools, steps_between


def groups_of(rows: Rows) -> Ints:
    dendrogram = clustering.average_linkage(rows)
    return clustering.cut(dendrogram, dendrogram.n_groups())


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def themes(sizes: list[int], *, width: int = 64, spread: float = 0.9, seed: int = 0) -> tuple[Rows, np.ndarray]:
    """Rows around one axis a theme, none a near-duplicate of another, and the theme of each."""
    rng = np.random.default_rng(seed)
    theme = np.repeat(np.arange(len(sizes)), sizes)
    noise = rng.standard_normal((len(theme), width)) / math.sqrt(width)
    return unit(np.eye(width)[theme] + spread * noise), theme


@settings(deadline=None)
@given(pools(), st.integers(0, 20), st.sampled_from([0.0, 0.3]))
def test_no_row_is_picked_twice_and_only_a_minimum_distance_leaves_seats_empty(
    pool: tuple, k: int, apart: float
) -> None:
    rows = pool[0]
    if len(rows) == 0:
        return
    groups = groups_of(rows)
    picks = representative_picks(rows, k, groups=groups, min_distance=apart).tolist()
    assert len(set(picks)) == len(picks) <= min(k, len(rows))
    if apart == 0:
        assert len(picks) == min(k, len(rows))
        n_first = min(k, len(set(groups.tolist())))
        assert len({groups[i] for i in picks[:n_first]}) == n_first, "one of each group first"
    else:
        steps = steps_between(rows[picks])
        np.fill_diagonal(steps, math.inf)
        assert (steps >= apart * 1e6).all()


def test_picks_keep_the_shares_of_the_pool_where_k_center_does_not() -> None:
    """A theme of 200, one of 60 and twelve rows that are like nothing."""
    rows, theme = themes([200, 60] + [1] * 12)
    picked = theme[representative_picks(rows, 30, groups=groups_of(rows))]
    farthest = theme[list(select(rows, [0.0] * 272, k=30, method="k_center").picks)]
    assert np.mean(picked == 0) > 0.5
    assert np.mean(picked > 1) < 0.25
    assert np.mean(farthest == 0) < 0.35
    assert np.mean(farthest > 1) == 0.4, "all twelve"


def test_a_group_counts_by_its_size() -> None:
    """One sentence sent forty times goes before a hundred that nobody repeats, and takes one seat."""
    rng = np.random.default_rng(1)
    singles = unit(rng.standard_normal((100, 64)))
    rows = np.vstack([singles, unit(np.eye(64)[:1] + 0.01 * rng.standard_normal((40, 64)) / 8)])
    picks = representative_picks(rows, 10, groups=groups_of(rows))
    assert picks[0] >= 100
    assert np.sum(picks >= 100) == 1


def test_outliers_come_when_nothing_else_is_left() -> None:
    rows, theme = themes([97, 1, 1, 1])
    picks = theme[representative_picks(rows, 99, groups=np.arange(100))]
    assert (picks[:98] == 0).sum() == 97, "two of the three are far out: 2 % of a hundred"
    assert picks[98] > 0


def test_what_many_sent_is_no_outlier() -> None:
    rows, _ = themes([99, 1])
    sizes = np.ones(100, dtype=np.int64)
    assert is_far_out(rows, sizes)[99]
    sizes[99] = 12
    assert not is_far_out(rows, sizes)[99]


@pytest.mark.parametrize("n", [1, 2, 49])
def test_a_small_pool_has_no_outliers(n: int) -> None:
    rows, _ = themes([n])
    assert not is_far_out(rows, np.ones(n, dtype=np.int64)).any()


def test_the_head_of_a_group_is_its_most_typical_row() -> None:
    rows = unit(np.array([[1.0, 0.3], [1.0, 0.0], [1.0, -0.2], [0.0, 1.0]]))
    heads, sizes = heads_of(rows, np.array([0, 0, 0, 1]))
    assert heads.tolist() == [1, 3]
    assert sizes.tolist() == [3, 1]


def test_second_rows_go_to_groups_by_their_sizes() -> None:
    """Groups of 60, 20 and 10 and nine seats: 6, 2 and 1."""
    rng = np.random.default_rng(2)
    groups = np.repeat([0, 1, 2], [60, 20, 10])
    rows = unit(np.eye(32)[groups] + 0.2 * rng.standard_normal((90, 32)) / math.sqrt(32))
    picks = representative_picks(rows, 9, groups=groups)
    assert np.bincount(groups[picks]).tolist() == [6, 2, 1]


@settings(deadline=None)
@given(pools(n_max=14), st.data())
def test_sizes_weigh_what_a_pick_covers(pool: tuple, data: st.DataObject) -> None:
    """The greedy of the weighted objective, pick by pick, with and without the matrix."""
    rows = pool[0]
    n = len(rows)
    sizes = np.array(data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)), dtype=np.int64)
    like = similarities(rows) if n else np.zeros((0, 0))
    options = {"weight": math.inf, "sizes": sizes}
    picks = facility_location_picks(rows, np.zeros(n), n, **options).tolist()
    assert picks == facility_location_picks(rows, np.zeros(n), n, matrix_rows=0, **options).tolist()
    for m, pick in enumerate(picks):
        covered = like[picks[:m]].max(axis=0, initial=0.0)
        adds = [float(np.maximum(like[i] - covered, 0) @ sizes) if i not in picks[:m] else -1.0 for i in range(n)]
        assert pick == int(np.argmax(adds))


def test_parts_of_a_large_pool_are_picked_from_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, theme = themes([120, 60, 20])
    whole = theme[representative_picks(rows, 40, groups=np.arange(200))]
    monkeypatch.setattr(representative, "PART_ROWS", 64)
    picks = representative_picks(rows, 40, groups=np.arange(200))
    assert len(set(picks.tolist())) == 40
    assert np.abs(np.bincount(theme[picks], minlength=3) - np.bincount(whole, minlength=3)).max() <= 6


def test_the_order_of_rows_changes_nothing() -> None:
    rows, _ = themes([60, 30] + [1] * 10)
    keys = [f"key {i:03}" for i in range(100)]
    order = np.random.default_rng(5).permutation(100)
    options = {"k": 60, "method": "representative"}
    first = {keys[i] for i in select(rows, [0.0] * 100, keys, **options).picks}
    again = {keys[order[i]] for i in select(rows[order], [0.0] * 100, [keys[i] for i in order], **options).picks}
    assert first == again


def test_traffic_is_selected_by_what_represents_it_above_the_floor() -> None:
    rows, _ = themes([60, 30] + [1] * 10)
    scores = [0.2 if i % 10 == 0 else 1.0 for i in range(100)]
    selection = select(rows, scores, k=30, is_traffic=True, score_floor=0.1)
    assert selection.report.method == "representative"
    assert selection.report.method_reason.startswith("The rows are traffic")
    assert selection.report.floor_dropped == tuple(range(0, 100, 10))
    assert not set(selection.picks) & set(range(0, 100, 10))
