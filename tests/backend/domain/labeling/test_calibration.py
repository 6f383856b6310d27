"""Temperatures, calibration errors and thresholds of confidences whose truth is known by construction."""

import numpy as np
import pytest

from backend.domain.labeling.calibration import Flags, Floats, ece, fit_temperature, threshold_for


def drawn(n: int, seed: int, *, of: float = 1.0) -> tuple[Floats, Flags]:
    """Confidences whose accuracy is their power `of`: 1 is calibrated."""
    rng = np.random.default_rng(seed)
    confidences = rng.beta(3, 1, size=n)
    return confidences, rng.random(n) < confidences**of


def test_a_temperature_cools_doubt_and_warms_overconfidence() -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 4, size=2000)
    logits = rng.normal(size=(2000, 4))
    logits[np.arange(2000), labels] += 2.0  # by construction the right confidences are softmax(2 * logits)
    right, _ = fit_temperature(logits, np.eye(4)[labels])
    assert right == pytest.approx(0.5, abs=0.1)
    assert fit_temperature(logits * 6, np.eye(4)[labels])[0] == pytest.approx(right * 6, rel=0.05)


def test_twenty_right_answers_do_not_make_certainty() -> None:
    labels = np.arange(20) % 4
    temperature, _ = fit_temperature(np.eye(4)[labels] * 3.0, np.eye(4)[labels])
    assert 0.4 < temperature < 1


def test_a_prior_says_what_few_answers_do_not() -> None:
    labels = np.arange(8) % 4
    logits = np.eye(4)[labels] * 2.0
    assert fit_temperature(logits, np.eye(4)[labels], expected=2.0)[0] > fit_temperature(logits, np.eye(4)[labels])[0]


def test_many_answers_are_doubted_less_readily_than_few() -> None:
    """Of many, most are of pairs that were chosen for being hard: the same sixteen ten times move T less."""
    wrong = np.eye(2)[np.arange(16) % 4 // 3]  # one in four
    sure = np.tile([8.0, 0.0], (16, 1))
    few, many = fit_temperature(sure, wrong)[0], fit_temperature(np.tile(sure, (10, 1)), np.tile(wrong, (10, 1)))[0]
    assert 2 < many < few


def test_answers_count_by_their_weights_and_soft_targets_by_their_shares() -> None:
    rng = np.random.default_rng(6)
    logits = rng.normal(size=(200, 3)) * 3
    labels = (logits + rng.gumbel(size=(200, 3)) * 1.2).argmax(axis=1)
    twice = np.concatenate([np.arange(200), np.arange(100)])
    weighted, loss = fit_temperature(logits, np.eye(3)[labels], weights=np.where(np.arange(200) < 100, 2.0, 1.0))
    assert loss == pytest.approx(fit_temperature(logits[twice], np.eye(3)[labels[twice]])[1], rel=1e-3)
    assert weighted == pytest.approx(fit_temperature(logits[twice], np.eye(3)[labels[twice]])[0], rel=0.05)
    soft = 0.6 * np.eye(3)[labels] + 0.4 / 3
    assert fit_temperature(logits, soft)[0] > fit_temperature(logits, np.eye(3)[logits.argmax(axis=1)])[0]


@pytest.mark.parametrize("n", [300, 3000])
def test_debiasing_takes_off_a_part_of_what_chance_adds_and_of_real_error_little(n: int) -> None:
    plain, less = (np.mean([ece(*drawn(n, seed), debias=debias) for seed in range(40)]) for debias in (False, True))
    assert less < 0.7 * plain
    power = 2.0  # E|c - c^2| = 3/4 - 3/5 of Beta(3, 1)
    wrong = np.mean([ece(*drawn(n, seed, of=power)) for seed in range(40)])
    assert wrong == pytest.approx(0.15, abs=0.02)


def test_an_error_without_answers_is_refused_and_one_answer_is_measured() -> None:
    with pytest.raises(ValueError, match="no answer"):
        ece(np.array([]), np.array([], dtype=bool))
    assert ece(np.array([0.75]), np.array([True])) == pytest.approx(0.25)


def test_a_threshold_keeps_its_promise_and_is_no_higher_than_it_must_be() -> None:
    """Above t, answers of Beta(3, 1) that are calibrated are right with 3/4 (1 - t^4) / (1 - t^3)."""
    broken, coverage = 0, []
    for seed in range(200):
        confidences, right = drawn(800, seed)
        threshold = threshold_for(confidences, right, 0.9, 0.1)
        if threshold is not None:
            broken += 0.75 * (1 - threshold**4) / (1 - threshold**3) < 0.9
            coverage.append((confidences >= threshold).mean())
    assert broken <= 0.1 * 200
    assert len(coverage) > 100
    assert np.mean(coverage) > 0.25  # of about .5 that would be right often enough


def test_a_promise_that_cannot_be_shown_is_not_made() -> None:
    assert threshold_for(np.linspace(0.5, 1, 20), np.ones(20, dtype=bool), 0.95, 0.05) is None  # 59 at least
    assert threshold_for(np.full(400, 0.5), np.arange(400) % 2 == 0, 0.9, 0.05) is None
    assert threshold_for(np.array([]), np.array([], dtype=bool), 0.9, 0.05) is None


def test_all_right_keeps_every_answer_and_ties_stay_together() -> None:
    confidences = np.repeat([0.9, 0.6], 100)
    assert threshold_for(confidences, np.ones(200, dtype=bool), 0.9, 0.05) == 0.6
    right = np.concatenate([np.ones(100, dtype=bool), np.arange(100) % 2 == 0])
    assert threshold_for(confidences, right, 0.9, 0.05) == 0.9
