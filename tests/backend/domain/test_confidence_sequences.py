"""An e-process may be looked at after every observation: false alarms are computed exactly, by recursion over the
counts, and confirmed on simulated streams, where the exact interval looked at as often fails."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betaln, xlogy

from backend.domain.confidence_sequences import (
    PRIOR,
    anytime_high,
    anytime_low,
    log_e_above,
    log_e_below,
)
from backend.domain.drafts.judge_controls import exact_interval
from backend.domain.errors import InvalidInput

ALPHA = 0.05


def anytime_interval(k: int, n: int) -> tuple[float, float]:
    return anytime_low(k, n, ALPHA / 2), anytime_high(k, n, ALPHA / 2)


@functools.cache
def alarms(bound: float, n_max: int, alpha: float = ALPHA) -> tuple[int, ...]:
    """For n = 1 ... n_max the least k at which the evidence against `bound` suffices; it never falls as n grows."""
    found: list[int] = []
    k = 1
    for n in range(1, n_max + 1):
        while k <= n and log_e_above(k, n, bound) < -math.log(alpha):
            k += 1
        found.append(k)
    return tuple(found)


def chance_of_alarm(rate: float, bounds: tuple[int, ...]) -> np.ndarray:
    """(n,) exact probabilities that an independent stream of this rate has reached its bound after 1 ... n
    observations."""
    alive = np.zeros(bounds[-1] + 2)
    alive[0] = 1.0
    stopped, out = 0.0, []
    for k in bounds:
        alive = alive * (1 - rate) + np.concatenate([[0.0], alive[:-1]]) * rate
        stopped += float(alive[k:].sum())
        alive[k:] = 0.0
        out.append(stopped)
    return np.array(out)


def ever_reached(hits: np.ndarray, bounds: tuple[int, ...]) -> float:
    """The share of the streams (m, n) whose running count is ever at its bound."""
    return float((hits.cumsum(axis=1) >= np.array(bounds)).any(axis=1).mean())


@pytest.mark.parametrize(
    ("k", "n", "bound"), [(0, 1, 0.02), (12, 200, 0.02), (3, 10, 0.5), (40, 41, 0.9), (1, 90, 0.1)]
)
def test_the_evidence_is_the_mixed_likelihood_ratio(k: int, n: int, bound: float) -> None:
    def ratio(rate: float) -> float:
        logs = xlogy(k, rate / bound) + (n - k) * math.log((1 - rate) / (1 - bound))
        return math.exp(logs + (PRIOR - 1) * math.log(rate * (1 - rate)))

    whole, _ = quad(ratio, bound, 1, limit=200)
    prior, _ = quad(lambda rate: (rate * (1 - rate)) ** (PRIOR - 1), bound, 1)
    assert log_e_above(k, n, bound) == pytest.approx(math.log(whole / prior), abs=1e-6)


@pytest.mark.parametrize("bound", [0.01, 0.02, 0.1, 0.5])
def test_false_alarms_stay_below_alpha_however_often_one_looks(bound: float) -> None:
    by_then = chance_of_alarm(bound, alarms(bound, 5000))
    assert by_then[-1] <= ALPHA
    assert by_then[-1] > ALPHA / 3  # not bought by never speaking
    assert chance_of_alarm(bound / 2, alarms(bound, 5000))[-1] < by_then[-1]


def test_simulated_streams_agree_and_the_exact_interval_looked_at_as_often_fails() -> None:
    bound, n_max = 0.02, 2000
    hits = np.random.default_rng(41).random((10_000, n_max)) < bound
    bounds = alarms(bound, n_max)
    share = ever_reached(hits, bounds)
    assert share <= ALPHA
    assert share == pytest.approx(chance_of_alarm(bound, bounds)[-1], abs=0.007)
    repeated, k = [], 1
    for n in range(1, n_max + 1):
        while k <= n and exact_interval(k, n, 1 - 2 * ALPHA)[0] <= bound:
            k += 1
        repeated.append(k)
    assert ever_reached(hits, tuple(repeated)) > 4 * ALPHA  # a one-sided level of 5 % each time: 25 % in all


@pytest.mark.parametrize(("rate", "by"), [(0.04, 2000), (0.06, 600), (0.10, 200), (0.30, 50)])
def test_a_rate_above_the_bound_is_found(rate: float, by: int) -> None:
    assert chance_of_alarm(rate, alarms(0.02, 2000))[by - 1] > 0.9


def test_a_rate_that_wanders_below_the_bound_raises_no_alarm() -> None:
    rng = np.random.default_rng(5)
    uniform = rng.random((4000, 1500))
    hits = np.zeros_like(uniform, dtype=bool)
    count = np.zeros(len(uniform))
    for n in range(uniform.shape[1]):  # an adversary: at the bound while it is ahead of its mean, else far below
        rate = np.where(count >= 0.02 * n, 0.02, 0.001)
        hits[:, n] = uniform[:, n] < rate
        count += hits[:, n]
    assert ever_reached(hits, alarms(0.02, 1500)) <= ALPHA


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.98])
def test_the_interval_holds_at_all_times_at_once(rate: float) -> None:
    n_max, streams = 1500, np.random.default_rng(7)
    hits = streams.random((4000, n_max)) < rate
    above = hits.cumsum(axis=1) >= np.array(alarms(rate, n_max, 0.025))
    below = (~hits).cumsum(axis=1) >= np.array(alarms(1 - rate, n_max, 0.025))
    assert (above | below).any(axis=1).mean() <= 0.05
    for stream in range(20):  # the interval leaves the rate out exactly where the evidence says so
        n = 1 + 70 * stream
        low, high = anytime_interval(int(hits[stream, :n].sum()), n)
        assert (low > rate) == above[stream, n - 1]
        assert (high < rate) == below[stream, n - 1]


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_rate_is_wider_than_the_exact_one_and_mirrors_itself(counts: tuple[int, int]) -> None:
    k, n = counts
    low, high = anytime_interval(k, n)
    assert low <= k / n <= high
    assert low <= exact_interval(k, n)[0] + 1e-9
    assert high >= exact_interval(k, n)[1] - 1e-9
    assert anytime_low(n - k, n, 0.025) == pytest.approx(1 - high, abs=1e-9)


def test_the_evidence_falls_as_the_bound_rises() -> None:
    for k, n in ((1, 1), (1, 10), (12, 200), (3, 5000), (4990, 5000)):
        logs = [log_e_above(k, n, bound) for bound in np.linspace(1e-6, k / n - 1e-9, 300)]
        assert (np.diff(logs) <= 1e-9).all()


def test_evidence_that_is_too_small_for_a_float_is_none() -> None:
    assert log_e_above(0, 100_000, 0.02) == -math.inf
    assert log_e_above(100, 1_000_000, 0.3) == -math.inf
    assert log_e_above(30_000, 1_000_000, 0.02) > 1000
    assert log_e_above(0, 0, 0.3) == pytest.approx(0.0)
    assert anytime_interval(0, 0) == (0.0, 1.0)
    assert anytime_high(1_000_000, 1_000_000, 0.05) == 1.0
    assert betaln(PRIOR, PRIOR) == pytest.approx(math.log(math.pi))


def test_what_is_no_proportion_is_refused() -> None:
    for call in (
        lambda: log_e_above(3, 2, 0.1),
        lambda: log_e_above(1, 2, 0.0),
        lambda: log_e_below(-1, 2, 0.1),
        lambda: anytime_low(1, 2, 0.0),
    ):
        with pytest.raises(InvalidInput):
            call()
