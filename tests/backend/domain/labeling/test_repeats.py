"""How much a teacher repeats itself, by what it answered to the same input twice."""

import numpy as np

from backend.domain.labeling.posteriors import Noise
from backend.domain.labeling.repeats import ASSUMED_REPEAT, repeat_of

ERROR = 0.2
NOISE = Noise(confusion=np.array([[1 - ERROR, ERROR], [ERROR, 1 - ERROR]]), error=np.full(2, ERROR), repeat=0.0)


def asked_twice(rng: np.random.Generator, n: int, repeats: float) -> tuple[np.ndarray, np.ndarray]:
    """Votes on n rows of a teacher that errs with ERROR and says the same again with this chance."""
    labels = rng.integers(0, 2, n)
    first = np.where(rng.random(n) < ERROR, 1 - labels, labels)
    anew = np.where(rng.random(n) < ERROR, 1 - labels, labels)
    second = np.where(rng.random(n) < repeats, first, anew)
    return np.eye(2)[first] + np.eye(2)[second], np.eye(2)[labels]


def test_a_teacher_that_was_asked_once_is_assumed_to_repeat_itself_now_and_then():
    assert repeat_of(np.eye(2), np.eye(2), NOISE) == ASSUMED_REPEAT
    assert repeat_of(np.zeros((0, 2)), np.zeros((0, 2)), NOISE) == ASSUMED_REPEAT


def test_the_correlation_is_what_the_teacher_was_made_with():
    rng = np.random.default_rng(7)
    for repeats in (0.0, 0.4, 1.0):
        votes, believed = asked_twice(rng, 20_000, repeats)
        assert abs(repeat_of(votes, believed, NOISE) - repeats) < 0.03


def test_few_pairs_leave_the_assumption_standing():
    votes, believed = asked_twice(np.random.default_rng(7), 4, 1.0)
    assert ASSUMED_REPEAT < repeat_of(votes, believed, NOISE) < 0.65
