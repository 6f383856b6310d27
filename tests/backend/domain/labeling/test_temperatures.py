import numpy as np
import pytest

from backend.domain.labeling.beliefs import weigh_votes
from backend.domain.labeling.temperatures import ASSUMED_TEMPERATURE, fit_temperature, temper


def drawn(n: int, factor: float, *, n_labels: int = 4, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a teacher whose log-probs are `factor` times too sure, and the labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, n_labels))
    right = temper(logits, 1.0)
    labels = (rng.random((n, 1)) > right.cumsum(axis=1)).sum(axis=1)
    return np.log(temper(logits * factor, 1.0)), np.minimum(labels, n_labels - 1)


def seen(labels: np.ndarray, share: float, n_labels: int = 4, seed: int = 2) -> np.ndarray:
    """A student that is right on `share` of the rows and says so of each."""
    rng = np.random.default_rng(seed)
    said = np.where(
        rng.random(len(labels)) < share, labels, (labels + rng.integers(1, n_labels, len(labels))) % n_labels
    )
    return np.where(np.eye(n_labels)[said] > 0, share, (1 - share) / (n_labels - 1))


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_a_teacher_is_believed_as_far_as_it_is_right(factor: float) -> None:
    scores, labels = drawn(600, factor)
    assert fit_temperature(scores, np.eye(4)[labels]) == pytest.approx(factor, rel=0.45)
    assert fit_temperature(scores, seen(labels, 0.7)) == pytest.approx(factor, rel=0.45)


def test_without_rows_that_say_something_the_assumption_stands() -> None:
    scores, _ = drawn(50, 6.0)
    assert fit_temperature(scores, np.full((50, 4), 0.25)) == ASSUMED_TEMPERATURE
    assert fit_temperature(np.full((3, 4), np.nan), np.full((3, 4), 0.25)) == ASSUMED_TEMPERATURE
    assert fit_temperature(scores[:1], np.eye(4)[:1]) == pytest.approx(ASSUMED_TEMPERATURE, rel=0.5)


def test_a_temperature_changes_how_sure_scores_are_and_never_their_order() -> None:
    scores = np.log(np.array([[0.9, 0.09, 0.01], [np.nan] * 3]))
    flat, sharp = temper(scores, 8.0), temper(scores, 0.5)
    assert 1 / 3 < flat[0, 0] < 0.9 < sharp[0, 0]
    assert np.isnan(flat[1]).all()
    np.testing.assert_allclose(temper(scores + 5, 2.0)[0], temper(scores, 2.0)[0])
    assert np.isfinite(temper(np.array([[0.0, -1e9, -np.inf]]), 1.0)).all()


def test_a_row_that_the_teacher_itself_is_unsure_of_is_less_believed() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 90)
    rows = np.eye(3)[labels] + rng.normal(0, 0.8, (90, 3))
    votes, folds, no_gold = np.eye(3)[labels], np.arange(90) % 5, np.zeros(90, dtype=bool)
    scores = np.log(np.where(votes > 0, 0.98, 0.01))
    scores[:10] = np.log(np.where(votes[:10] > 0, 0.5, 0.25))
    scores[10:20] = np.nan
    plain = weigh_votes(rows, votes, folds, is_gold=no_gold)
    soft = weigh_votes(rows, votes, folds, is_gold=no_gold, scores=scores)
    at = np.arange(90)
    less = plain.believed[at, labels] - soft.believed[at, labels]
    assert less[:10].mean() > 0.1 > less[20:].mean()
    np.testing.assert_allclose(less[10:20], 0, atol=1e-12)
    assert (plain.temperature is None, soft.temperature is None) == (True, False)
    np.testing.assert_array_equal(plain.noise.confusion, soft.noise.confusion)


def test_gold_twins_show_a_teacher_that_is_surely_wrong() -> None:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, 120)
    rows = rng.normal(0, 1, (120, 3))  # of which a student learns nothing
    said = np.where(rng.random(120) < 0.4, (labels + 1) % 3, labels)
    votes, no_gold = np.eye(3)[said], np.zeros(120, dtype=bool)
    scores = np.log(np.where(votes > 0, 0.998, 0.001))
    temperatures = [
        weigh_votes(rows, votes, np.arange(120) % 5, is_gold=no_gold, scores=scores, twins=twins).temperature or 0.0
        for twins in (None, labels)
    ]
    assert temperatures[1] > temperatures[0] > 0
