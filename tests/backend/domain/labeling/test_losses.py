import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.losses import LOSING_SHARE, losing_slices


def test_the_slice_with_the_most_traffic_times_error_comes_first() -> None:
    assert losing_slices([0.5, 0.3, 0.2], [100, 60, 40], [2, 15, 8])[0] == 1
    assert losing_slices([0.1, 0.9], [50, 50], [25, 5]) == [1], "a small slice loses little, whatever its error"


def test_equal_slices_are_taken_in_their_order_until_they_carry_half() -> None:
    assert losing_slices([0.25] * 4, [40] * 4, [10] * 4) == [0, 1]


def test_a_slice_without_a_row_loses_what_all_lose_on_the_mean() -> None:
    assert losing_slices([0.4, 0.6], [100, 0], [20, 0]) == [1]
    assert losing_slices([0.9, 0.1], [100, 0], [20, 0]) == [0]


def test_where_nothing_is_wrong_no_slice_loses() -> None:
    assert losing_slices([], [], []) == []
    assert losing_slices([1.0], [30], [0]) == []


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 200), st.floats(0, 1)), min_size=1, max_size=20))
def test_they_are_the_fewest_that_carry_half_of_the_loss(parts: list[tuple[int, int, float]]) -> None:
    shares = np.array([share for share, _, _ in parts]) / sum(share for share, _, _ in parts)
    known = [n for _, n, _ in parts]
    wrong = [int(n * rate) for _, n, rate in parts]
    losing = losing_slices(shares.tolist(), known, wrong)
    assert len(set(losing)) == len(losing)
    if not sum(wrong):
        assert losing == []
        return
    mean = sum(wrong) / sum(known)
    loss = shares * (np.array(wrong) + 2 * mean) / (np.array(known) + 2)
    assert sum(loss[losing]) >= (LOSING_SHARE - 1e-9) * loss.sum()
    assert sum(loss[losing[:-1]]) <= (LOSING_SHARE + 1e-9) * loss.sum()
    assert min(loss[losing]) >= max([one for at, one in enumerate(loss) if at not in losing], default=0) - 1e-12
