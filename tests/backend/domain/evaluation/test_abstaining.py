"""Unsure answers: a threshold from pairs that were held back, and what it comes to on held-out gold."""

import numpy as np
import pytest

from backend.domain.canonical import canonical_json
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.abstaining import (
    Threshold,
    ThresholdBasis,
    calibration_error,
    choose_threshold,
    sure_answers,
)
from backend.domain.evaluation.classification import PPM

BOUND = Threshold(ppm=700_000, target_ppm=950_000, basis=ThresholdBasis.BOUND, n=200)


def calibrated(n: int, seed: int) -> tuple[list[int], list[bool]]:
    """Answers that are right as often as their confidence says."""
    rng = np.random.default_rng(seed)
    confidences = rng.uniform(0.4, 1.0, n)
    return [round(PPM * value) for value in confidences], [bool(x) for x in rng.uniform(size=n) < confidences]


def test_many_held_answers_show_the_lowest_threshold_that_keeps_the_promise() -> None:
    confidences = [900_000] * 300 + [500_000] * 100
    right = [True] * 298 + [False] * 2 + [True, False] * 50
    chosen = choose_threshold(confidences, right, accuracy=0.95)
    assert (chosen.ppm, chosen.basis, chosen.n) == (900_000, ThresholdBasis.BOUND, 400)


@pytest.mark.parametrize(("confidence", "ppm"), [(900_000, 950_000), (970_000, 970_000)])
def test_pairs_without_the_hardest_show_no_bound_and_only_raise_the_threshold(confidence: int, ppm: int) -> None:
    chosen = choose_threshold([confidence] * 300, [True] * 300, accuracy=0.95, are_all=False)
    assert (chosen.ppm, chosen.basis) == (ppm, ThresholdBasis.CONFIDENCE)


def test_a_promise_on_new_answers_of_a_calibrated_model_holds() -> None:
    chosen = choose_threshold(*calibrated(2_000, seed=1), accuracy=0.9)
    assert chosen.basis is ThresholdBasis.BOUND
    sure = sure_answers(*calibrated(20_000, seed=2), chosen)
    assert sure.correct / sure.n_sure >= 0.9
    assert sure.n_sure > 2_000


@pytest.mark.parametrize(
    ("confidences", "right"),
    [([], []), ([990_000] * 20, [True] * 20), ([990_000] * 200, [True, False] * 100)],
    ids=["none", "too few to show it", "no threshold keeps it"],
)
def test_where_nothing_can_be_shown_the_confidence_is_taken_at_its_word(
    confidences: list[int], right: list[bool]
) -> None:
    chosen = choose_threshold(confidences, right, accuracy=0.95)
    assert (chosen.ppm, chosen.basis, chosen.n) == (950_000, ThresholdBasis.CONFIDENCE, len(right))


def test_coverage_and_accuracy_are_counted_and_a_rule_is_sure() -> None:
    sure = sure_answers([900_000, 700_000, 699_999, 100_000], [True, False, True, True], BOUND, ruled=[3])
    assert (sure.n, sure.n_sure, sure.correct) == (4, 3, 2)
    value = sure.to_json()
    assert (value["coverage_ppm"], value["accuracy_ppm"]) == (750_000, 666_666)
    assert value["accuracy_low_ppm"] < 666_666 < value["accuracy_high_ppm"]
    assert canonical_json(value)
    assert Threshold.from_json(BOUND.to_json()) == BOUND


def test_where_every_answer_is_unsure_there_is_no_accuracy() -> None:
    value = sure_answers([1, 2], [True, True], BOUND).to_json()
    assert (value["coverage_ppm"], value["accuracy_ppm"]) == (0, None)
    assert (value["accuracy_low_ppm"], value["accuracy_high_ppm"]) == (0, PPM)


def test_the_error_of_a_calibrated_model_is_about_its_floor_and_that_of_an_overconfident_one_is_not() -> None:
    honest = calibration_error(*calibrated(1_200, seed=3))
    assert honest["ece_plain_ppm"] < 2 * honest["ece_floor_ppm"]
    assert honest["ece_ppm"] <= honest["ece_plain_ppm"]
    confidences, right = calibrated(1_200, seed=4)
    boasting = calibration_error([min(PPM, value + 200_000) for value in confidences], right)
    assert boasting["ece_ppm"] > 100_000


def test_the_floor_of_bins_of_eighty_answers_is_what_the_normal_law_says() -> None:
    """The figure is sqrt(2 / pi) sqrt(.77 .23 / 80) = .03754."""
    error = calibration_error([770_000] * 1_200, [True] * 924 + [False] * 276)
    assert error["ece_floor_ppm"] == pytest.approx(37_542, abs=20)
    assert (error["bins"], error["n"]) == (15, 1_200)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(InvalidInput):
        calibration_error([], [])
    with pytest.raises(InvalidInput):
        choose_threshold([1], [], accuracy=0.9)
