import pytest

from tests.bench.alternatives_floor import refused


@pytest.mark.parametrize("n", [20, 50])
def test_the_floor_refuses_hardly_any_model_that_is_better_and_few_that_are_equal(n: int) -> None:
    assert refused(n, 0.02) < 0.005
    assert refused(n, 0.0) < 0.025


def test_it_refuses_more_often_the_more_is_lost_and_the_more_rows_there_are() -> None:
    assert refused(50, 0.0) < refused(50, -0.05) < refused(50, -0.12)
    assert refused(20, -0.12) < refused(50, -0.12)
