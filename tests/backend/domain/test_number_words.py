"""How numbers are written: never past a floor that was failed, three digits of money, milliseconds."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.number_words import milliseconds, percent, points, score, usd, usd_exact

PPM = st.integers(0, 1_000_000)
MICRO = st.integers(-(10**12), 10**12)


@given(PPM, PPM)
def test_what_is_below_a_floor_is_never_written_above_it(measured: int, required: int) -> None:
    if measured < required:
        assert float(percent(measured).removesuffix(" %")) <= required / 10_000
        assert float(score(measured)) <= required / 1_000_000


@given(PPM)
def test_a_share_and_a_score_of_one_value_have_the_same_digits(ppm: int) -> None:
    assert percent(ppm).removesuffix(" %").replace(".", "").zfill(4) == score(ppm).replace(".", "")


@given(st.integers(-1_000_000, 1_000_000))
def test_a_difference_carries_its_sign_and_is_cut_towards_nothing(ppm: int) -> None:
    assert points(ppm)[0] == ("-" if ppm < 0 else "+")
    assert abs(float(points(ppm))) <= abs(ppm) / 10_000


@given(MICRO)
def test_money_is_right_to_three_digits_or_a_cent_and_exact_beside_it(microusd: int) -> None:
    amount, rounded = Decimal(microusd) / 1_000_000, _number(usd(microusd))
    assert abs(amount - rounded) <= max(abs(amount) / 200, Decimal(0)) + (Decimal("0.005") if abs(amount) >= 1 else 0)
    assert _number(usd_exact(microusd)) == amount
    digits = usd(microusd).strip("-$").replace(",", "")
    assert abs(amount) >= 1 or len(digits.replace(".", "").lstrip("0")) <= 3


@given(st.integers(0, 10**10))
def test_a_time_has_three_digits_at_least_and_is_never_in_other_units(microseconds: int) -> None:
    number, unit = milliseconds(microseconds).split(" ")
    assert unit == "ms"
    assert abs(float(number.replace(",", "")) - microseconds / 1000) <= max(microseconds / 1000 / 200, 0.0005)


def _number(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", ""))
