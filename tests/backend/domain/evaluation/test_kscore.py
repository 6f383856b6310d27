"""The K-score's formula: its axes, its sum, and that a perfect model passes the gate of its kind."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.artifact.kolm_verify import check_k_score
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import PPM, evaluate
from backend.domain.evaluation.gate import decide_gate
from backend.domain.evaluation.gate_floors import K_MIN_OF, FloorName, GateOptions, required_ppm
from backend.domain.evaluation.kscore import SCALES, KScore, composite_ppm, k_score, score_evaluation
from backend.domain.evaluation.own_time import OwnTime, Unit
from backend.domain.money.pricing import price_book
from tests.backend.domain.evaluation.scores import own

SMALL = {"size_bytes": 300_000, "own": own(5_000), "cost_nanousd": 200, "p50_us": 9_000}
MB = 10**6
USD_A_SECOND = price_book().prices["runner.second"].usd_per_unit


def perfect(size_bytes: int, time: OwnTime) -> KScore:
    """The score of a model without a mistake, at the shipped price book's price of its own time."""
    return k_score(
        accuracy_ppm=PPM,
        coverage_ppm=PPM,
        n=50,
        size_bytes=size_bytes,
        own=time,
        cost_nanousd=int(USD_A_SECOND * time.answer_us * 1000),
        p50_us=time.answer_us,
    )


@pytest.mark.parametrize(
    ("unit", "kib", "own_us", "size", "latency", "composite"),
    [
        (Unit.ANSWER, 10, 50, 0.889, 1.0, 0.983),
        (Unit.ANSWER, 32 * 1024, 10_000, 0.5, 0.909, 0.911),
        (Unit.ANSWER, 96 * 1024, 80_000, 0.447, 0.556, 0.850),
        (Unit.TOKEN, 64, 0, 1.0, 1.0, 1.0),
        (Unit.TOKEN, 64 * 1024, 100_000, 0.667, 0.5, 0.875),
    ],
)
def test_each_unit_has_its_scales(
    unit: Unit, kib: int, own_us: int, size: float, latency: float, composite: float
) -> None:
    score = k_score(
        accuracy_ppm=PPM,
        coverage_ppm=PPM,
        n=10,
        size_bytes=kib * 1024,
        own=own(own_us, unit),
        cost_nanousd=0,
        p50_us=1,
    )
    assert score.size_ppm / 1e6 == pytest.approx(size, abs=6e-4)
    assert score.latency_ppm / 1e6 == pytest.approx(latency, abs=6e-4)
    assert score.composite_ppm / 1e6 == pytest.approx(composite, abs=6e-4)


@given(
    st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.sampled_from(list(Unit)),
    st.integers(0, 10**11),
    st.integers(0, 10**9),
    st.integers(0, 10**10),
)
def test_the_composite_is_the_weighted_sum_of_the_published_axes_and_the_verifier_finds_the_same(
    count: tuple[int, int], unit: Unit, size: int, time: int, cost: int
) -> None:
    correct, n = count
    share = correct * PPM // n
    s = k_score(
        accuracy_ppm=share,
        coverage_ppm=PPM,
        n=n,
        size_bytes=size,
        own=own(time, unit),
        cost_nanousd=cost,
        p50_us=7,
    )
    total = 40 * s.accuracy_ppm + 15 * (s.size_ppm + s.latency_ppm + s.cost_ppm + s.coverage_ppm)
    assert s.composite_ppm == total // 100 == composite_ppm(s.axes())
    scale = SCALES[unit]
    exact = 0.4 * correct / n + 0.15 * (
        max(0.0, 1 - math.log2(max(1, size / 1024 / scale.free_kib)) / 30)
        + 1 / (1 + time / scale.half_us)
        + 1 / (1 + 1000 * cost / 1e9)
        + 1
    )
    assert s.composite_ppm / 1e6 == pytest.approx(exact, abs=3e-6)
    texts = {name: value for name, value in s.to_json().items() if not isinstance(value, int)}
    assert texts == {"formula": "k-score-2", "unit": unit, "clock": "cpu"}
    assert all(0 <= axis <= 1_000_000 for axis in s.axes().values())
    check_k_score(s.to_json())


def test_a_score_of_nothing_is_zero_and_sizes_below_zero_are_refused() -> None:
    assert k_score(accuracy_ppm=0, coverage_ppm=0, n=0, **SMALL).composite_ppm == 0
    for wrong in ({"size_bytes": -1}, {"p50_us": -1}, {"cost_nanousd": -1}):
        with pytest.raises(InvalidInput):
            k_score(accuracy_ppm=500_000, coverage_ppm=500_000, n=4, **(SMALL | wrong))


def test_no_wall_clock_moves_a_k_score() -> None:
    evaluation = evaluate(["a", "b"], ["a", "b"] * 30, ["a", "b"] * 30)
    scores = [score_evaluation(evaluation, **(SMALL | {"p50_us": p50})) for p50 in (1, 10**7)]
    assert scores[0].composite_ppm == scores[1].composite_ppm


# sizes: the table of docs/decisions/0029-k-score-2.md, of rank 8 to 32 and of both kinds of floats
@pytest.mark.parametrize("size_mb", [9, 18, 40, 70, 81, 161, 162, 275, 323])
@pytest.mark.parametrize("own_ms", [1, 25, 250, 2_500, 30_000])
@pytest.mark.parametrize("unit", list(Unit))
def test_a_perfect_model_on_a_causal_base_passes_its_gate_whatever_it_weighs_and_takes(
    unit: Unit, own_ms: int, size_mb: int
) -> None:
    time = own(1000 * own_ms, unit, units=60 if unit is Unit.TOKEN else 1)
    assert perfect(size_mb * MB, time).composite_ppm >= required_ppm(K_MIN_OF["causal"]) + 100_000


@pytest.mark.parametrize(("size_mb", "own_ms"), [(1.5, 5), (1.5, 60), (11, 60), (28, 500), (113, 2_000)])
def test_a_perfect_encoder_passes_its_gate_up_to_the_largest_rank_on_a_slow_core(size_mb: float, own_ms: int) -> None:
    assert perfect(int(size_mb * MB), own(1000 * own_ms)).composite_ppm >= required_ppm(K_MIN_OF["encoder"])


@pytest.mark.parametrize("kind", list(K_MIN_OF))
def test_a_useless_model_is_refused_by_a_floor_before_its_k_score_is_asked(kind: str) -> None:
    gold = ["a", "b"] * 30
    useless = evaluate(["a", "b"], gold, ["a"] * 60)
    decision = decide_gate(GateOptions(k_min=K_MIN_OF[kind]), useless, score_evaluation(useless, **SMALL))
    assert decision.first_failed is FloorName.ACCURACY_LOWER
