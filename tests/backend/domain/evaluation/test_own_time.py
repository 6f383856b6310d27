"""The own time of a model: what a slower or busier machine lengthens, and what it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.own_time import REFERENCE_NS, Clock, OwnTime, Unit, own_time

TIMES = st.lists(st.integers(10**5, 10**10), min_size=1, max_size=50)


@given(TIMES, st.integers(2, 40))
def test_a_machine_that_is_slower_at_everything_changes_no_own_time(times: list[int], slower: int) -> None:
    plain = own_time(Unit.ANSWER, Clock.CPU, times, [1] * len(times), reference_ns=REFERENCE_NS)
    slow = own_time(
        Unit.ANSWER, Clock.CPU, [slower * t for t in times], [1] * len(times), reference_ns=slower * REFERENCE_NS
    )
    assert abs(slow.own_us - plain.own_us) <= 1


def test_a_token_has_its_share_of_the_answers_and_an_answer_that_of_its_tokens() -> None:
    time = own_time(Unit.TOKEN, Clock.CPU, [30_000_000, 90_000_000], [10, 30], reference_ns=2 * REFERENCE_NS)
    assert (time.measured_ns, time.units_milli) == (3_000_000, 20_000)
    assert time.own_us == 1500
    assert time.answer_us == 30_000
    assert time.at_pace(500_000).own_us == 750


def test_without_a_reference_a_time_stands_as_it_was_measured() -> None:
    time = own_time(Unit.ANSWER, Clock.DEVICE, [7_000_000], [1], reference_ns=0)
    assert time.own_us == 7000
    assert OwnTime.from_json(time.to_json()) == time


def test_answers_without_a_token_count_as_one() -> None:
    assert own_time(Unit.TOKEN, Clock.CPU, [5_000], [0], reference_ns=0).own_us == 5


def test_a_time_below_zero_is_refused() -> None:
    with pytest.raises(InvalidInput):
        OwnTime(unit=Unit.ANSWER, clock=Clock.CPU, measured_ns=-1, reference_ns=0, units_milli=1000)
