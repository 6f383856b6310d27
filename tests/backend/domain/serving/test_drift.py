"""A regression is said rarely of what is healthy and soon of what is not, however often one looks."""

import numpy as np
import pytest

from backend.domain.serving.drift import MIN_COMPARED, DriftRule, drift

RULE = DriftRule(heldout_ppm=900_000, margin_ppm=50_000, alpha_ppm=50_000)
N_STREAMS = 150
N_LOOKS = 200


def ever_fires(agreements: np.ndarray, rule: DriftRule = RULE) -> int | None:
    """The first look at which a stream of agreements in ppm is called a regression."""
    total = 0
    for n, agreement in enumerate(agreements, start=1):
        total += int(agreement)
        if drift(n, total, rule).is_regression:
            return n
    return None


def labels(rng: np.random.Generator, rate: float) -> np.ndarray:
    return 1_000_000 * (rng.random(N_LOOKS) < rate)


def fields(rng: np.random.Generator, rate: float) -> np.ndarray:
    """Field F1: anything between 0 and 1, of this mean."""
    return np.round(1e6 * rng.beta(8 * rate, 8 * (1 - rate), N_LOOKS))


@pytest.mark.parametrize("draw", [labels, fields])
def test_a_rate_at_the_floor_is_called_a_regression_at_most_as_often_as_alpha(draw) -> None:
    """Looked at after every one of 200 comparisons, and at the very edge of the hypothesis."""
    rng = np.random.default_rng(7)
    alarms = sum(ever_fires(draw(rng, RULE.floor)) is not None for _ in range(N_STREAMS))
    # 5 % of 150 is 7.5; with 97 % confidence a true rate of 5 % shows at most 13
    assert alarms <= 13


def test_a_rate_that_wanders_above_the_floor_is_healthy() -> None:
    rng = np.random.default_rng(8)
    rates = 0.85 + 0.15 * np.abs(np.sin(np.arange(N_LOOKS) / 20))
    alarms = sum(ever_fires(1_000_000 * (rng.random(N_LOOKS) < rates)) is not None for _ in range(50))
    assert alarms <= 6


def test_a_real_fall_is_found_in_time() -> None:
    rng = np.random.default_rng(9)
    found = [ever_fires(labels(rng, 0.6)) for _ in range(40)]
    assert None not in found
    assert sorted(n for n in found if n is not None)[20] <= 60


def test_a_few_comparisons_say_nothing() -> None:
    assert not drift(MIN_COMPARED - 1, 0, RULE).is_regression
    assert drift(MIN_COMPARED, 0, RULE).is_regression
    assert drift(0, 0, RULE).agreement_ppm is None


def test_the_floor_is_the_held_out_accuracy_less_the_margin_and_inside_the_unit() -> None:
    assert drift(1, 0, RULE).floor_ppm == 850_000
    for heldout in (0, 1_000_000):
        rule = DriftRule(heldout_ppm=heldout, margin_ppm=5_000, alpha_ppm=10_000)
        assert 0 < rule.floor < 1
