from hypothesis import given
from hypothesis import strategies as st

from tests.bench.paired import compare

ROWS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200)


@given(ROWS)
def test_swapping_the_two_turns_the_comparison_round(rows: list[tuple[bool, bool]]) -> None:
    first, second = [a for a, _ in rows], [b for _, b in rows]
    one, other = compare(first, second), compare(second, first)
    assert (one.wins, one.losses, one.difference) == (other.losses, other.wins, -other.difference)
    assert one.p == other.p


@given(ROWS)
def test_the_interval_holds_the_difference_in_accuracy(rows: list[tuple[bool, bool]]) -> None:
    first, second = [a for a, _ in rows], [b for _, b in rows]
    found = compare(first, second)
    assert abs(found.difference - (sum(first) - sum(second)) / len(rows)) < 1e-12
    assert found.low <= found.difference <= found.high


def test_items_that_both_answer_alike_do_not_change_p() -> None:
    few = compare([True] * 9 + [False], [False] * 9 + [True])
    many = compare([True] * 9 + [False] + [True] * 500, [False] * 9 + [True] + [True] * 500)
    assert few.p == many.p
    assert round(few.p, 4) == 0.0215  # 2 * (1 + 10) / 1024
