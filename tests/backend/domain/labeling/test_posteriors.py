import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.beliefs import weigh_votes
from backend.domain.labeling.linear_head import Floats, Ints
from backend.domain.labeling.posteriors import PRIOR_ERROR, UNKNOWN_ROWS, Noise, fit_noise, posteriors
from tests.backend.domain.labeling.test_linear_head import one_hot


def flat_noise(n_labels: int, error: float, *, repeat: float = 0.0) -> Noise:
    confusion = np.full((n_labels, n_labels), error / (n_labels - 1))
    np.fill_diagonal(confusion, 1 - error)
    return Noise(confusion=confusion, error=np.full(n_labels, error), repeat=repeat)


def simulated_votes(
    truth: Ints, n_labels: int, error: float, n_votes: int, seed: int, *, repeat: float = 0.0
) -> Floats:
    """Counts of a teacher that errs with `error`; each later answer is the first one again with `repeat`."""
    rng = np.random.default_rng(seed)
    n = len(truth)

    def answer() -> Ints:
        is_wrong = rng.random(n) < error
        return np.where(is_wrong, (truth + rng.integers(1, n_labels, n)) % n_labels, truth)

    first = answer()
    votes = one_hot(first, n_labels)
    for _ in range(n_votes - 1):
        votes += one_hot(np.where(rng.random(n) < repeat, first, answer()), n_labels)
    return votes


def simulated_student(truth: Ints, n_labels: int, right: float, confidence: float, seed: int) -> Floats:
    """Out-of-fold probabilities of a student that is right with `right` and always as sure as `confidence`."""
    rng = np.random.default_rng(seed)
    n = len(truth)
    answers = np.where(rng.random(n) < right, truth, (truth + rng.integers(1, n_labels, n)) % n_labels)
    return np.full((n, n_labels), (1 - confidence) / (n_labels - 1)) + one_hot(answers, n_labels) * (
        confidence - (1 - confidence) / (n_labels - 1)
    )


def draw_truth(n: int, n_labels: int, seed: int) -> Ints:
    return np.random.default_rng(1_000 + seed).integers(0, n_labels, n)


def test_one_vote_by_hand() -> None:
    prior = np.array([[0.6, 0.3, 0.1]])
    believed = posteriors(np.array([[0.0, 1.0, 0.0]]), prior, flat_noise(3, 0.2))
    odds = np.array([0.6 * 0.1, 0.3 * 0.8, 0.1 * 0.1])
    np.testing.assert_allclose(believed[0], odds / odds.sum())


@pytest.mark.parametrize(("repeat", "power"), [(0.0, 1.0), (0.5, 0.5), (1.0, 1 / 3)])
def test_repeated_votes_are_worth_less_by_kish(repeat: float, power: float) -> None:
    """Three votes that repeat each other wholly are worth one."""
    noise = flat_noise(2, 0.1, repeat=repeat)
    believed = posteriors(np.array([[3.0, 0.0]]), np.array([[0.5, 0.5]]), noise)
    odds = (0.9 / 0.1) ** (3 * power)
    np.testing.assert_allclose(believed[0, 0], odds / (1 + odds))


def test_a_student_is_never_surer_than_the_clip() -> None:
    believed = posteriors(np.zeros((1, 2)), np.array([[0.999, 0.001]]), flat_noise(2, 0.1))
    np.testing.assert_allclose(believed, [[0.95, 0.05]])
    many = np.full((1, 77), 1e-6)
    many[0, 5] = 1 - 76e-6
    believed = posteriors(np.zeros((1, 77)), many, flat_noise(77, 0.1))
    np.testing.assert_allclose(believed[0, 5], 0.95)


def test_gold_stays_and_what_nobody_was_asked_keeps_the_prior() -> None:
    prior = np.array([[0.0, 1.0, 0.0], [0.5, 0.3, 0.2]])
    votes = np.array([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(posteriors(votes, prior, flat_noise(3, 0.1)), prior)


def test_an_answer_counts_as_sure_as_its_log_probs_are_and_at_most_as_a_vote() -> None:
    noise, prior = flat_noise(2, 0.1), np.full((4, 2), 0.5)
    votes = np.tile([1.0, 0.0], (4, 1))
    shares = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75], [np.nan, np.nan]])
    believed = posteriors(votes, prior, noise, shares=shares)
    np.testing.assert_allclose(believed[:, 0], [0.9, 0.5, 0.3, 0.9], atol=1e-9)
    np.testing.assert_array_equal(posteriors(votes, prior, noise)[0], believed[3])


def test_of_several_votes_the_first_alone_is_what_the_log_probs_say() -> None:
    noise, prior = flat_noise(2, 0.1), np.full((2, 2), 0.5)
    votes, shares = np.tile([2.0, 0.0], (2, 1)), np.array([[0.5, 0.5], [1.0, 0.0]])
    believed = posteriors(votes, prior, noise, shares=shares)
    np.testing.assert_allclose(believed[:, 0], [0.9, 81 / 82], atol=1e-9)


def test_log_probs_of_a_row_that_is_gold_or_has_no_vote_say_nothing() -> None:
    noise, prior = flat_noise(2, 0.1), np.array([[1.0, 0.0], [0.6, 0.4]])
    believed = posteriors(np.array([[0.0, 1.0], [0.0, 0.0]]), prior, noise, shares=np.array([[0.0, 1.0]] * 2))
    np.testing.assert_allclose(believed, prior)


@pytest.mark.parametrize(("error", "n_votes"), [(0.0, 2), (0.1, 2), (0.0, 3), (0.1, 3), (0.25, 3)])
def test_the_teachers_error_is_recovered(error: float, n_votes: int) -> None:
    truth = draw_truth(800, 5, 1)
    votes = simulated_votes(truth, 5, error, n_votes, seed=2)
    noise = fit_noise(votes, simulated_student(truth, 5, 0.9, 0.9, 3), is_gold=np.zeros(800, dtype=bool), repeat=0.0)
    assert noise.error.mean() == pytest.approx(error, abs=0.04)
    np.testing.assert_allclose(noise.confusion.sum(axis=1), 1)
    np.testing.assert_allclose(np.diag(noise.confusion), 1 - noise.error)


def test_one_vote_a_row_says_nothing_of_errors_and_a_few_second_ones_do() -> None:
    truth = draw_truth(400, 5, 21)
    prior, no_gold = simulated_student(truth, 5, 0.8, 0.8, 22), np.zeros(400, dtype=bool)
    for error, low, high in ((0.0, 0.0, 0.05), (0.3, 0.15, 0.4)):
        votes = simulated_votes(truth, 5, error, 1, seed=23)
        assert fit_noise(votes, prior, is_gold=no_gold, repeat=0.0).error.tolist() == pytest.approx([0.1] * 5)
        votes[:60] += simulated_votes(truth, 5, error, 1, seed=24)[:60]
        assert low <= fit_noise(votes, prior, is_gold=no_gold, repeat=0.0).error.mean() <= high


def test_equal_answers_of_a_teacher_that_repeats_itself_do_not_make_it_right() -> None:
    """Errors of a fifth, three equal answers a row: fitted as if it repeated nothing, it errs hardly ever."""
    truth = draw_truth(400, 4, 3)
    votes = simulated_votes(truth, 4, 0.2, 3, 3, repeat=1.0)
    prior, nobody = simulated_student(truth, 4, 0.85, 0.8, 4), np.zeros(400, dtype=np.bool_)
    errors = [fit_noise(votes, prior, is_gold=nobody, repeat=repeat).error.mean() for repeat in (0.0, 0.9, 1.0)]
    assert errors[0] < 0.03
    assert errors[1] > 1.5 * errors[0]
    assert errors[2] == pytest.approx(PRIOR_ERROR)


def test_a_student_that_is_unsure_of_everything_is_sharpened() -> None:
    """A regularised head is right far more often than it says: its disagreement still finds wrong votes."""
    truth = draw_truth(600, 10, 25)
    votes, prior = simulated_votes(truth, 10, 0.1, 1, seed=26), simulated_student(truth, 10, 0.9, 0.4, 27)
    noise = fit_noise(votes, prior, is_gold=np.zeros(600, dtype=bool), repeat=0.0)
    assert noise.power > 1.0
    is_unsure = posteriors(votes, prior, noise).max(axis=1) < 0.8
    is_wrong = votes.argmax(axis=1) != truth
    assert is_unsure[is_wrong].mean() > 0.8
    assert is_unsure[~is_wrong].mean() < 0.2


@pytest.mark.parametrize("error", [0.1, 0.2])
def test_posteriors_are_right_more_often_than_votes(error: float) -> None:
    truth = draw_truth(800, 5, 4)
    votes, prior = simulated_votes(truth, 5, error, 1, seed=5), simulated_student(truth, 5, 0.9, 0.9, 6)
    noise = fit_noise(votes, prior, is_gold=np.zeros(800, dtype=bool), repeat=0.0)
    believed = posteriors(votes, prior, noise)
    by_vote = (votes.argmax(axis=1) == truth).mean()
    assert (believed.argmax(axis=1) == truth).mean() >= by_vote
    is_sure = believed.max(axis=1) >= 0.8
    assert (believed.argmax(axis=1) == truth)[is_sure].mean() >= by_vote + 0.8 * error


@pytest.mark.parametrize("n_labels", [2, 6, 40])
@pytest.mark.parametrize("confidence", [0.6, 0.95, 0.999])
@pytest.mark.parametrize("n_votes", [1, 2])
def test_a_weak_student_does_not_overrule_a_teacher_that_is_right(
    n_labels: int, confidence: float, n_votes: int
) -> None:
    truth = draw_truth(300, n_labels, 7)
    votes = simulated_votes(truth, n_labels, 0.0, n_votes, seed=8)
    prior = simulated_student(truth, n_labels, 0.6, confidence, 9)
    for repeat in (0.0, 1.0):
        noise = fit_noise(votes, prior, is_gold=np.zeros(300, dtype=bool), repeat=repeat)
        believed = posteriors(votes, prior, noise)
        assert (believed.argmax(axis=1) == truth).mean() >= 0.99


def test_a_label_that_the_teacher_gets_wrong_is_noticed() -> None:
    truth = draw_truth(900, 3, 10)
    votes = one_hot(np.where((truth == 2) & (np.random.default_rng(0).random(900) < 0.6), 1, truth), 3)
    prior = simulated_student(truth, 3, 0.95, 0.93, 11)
    is_gold = np.arange(900) < 90
    prior[is_gold] = one_hot(truth[is_gold], 3)
    noise = fit_noise(votes, prior, is_gold=is_gold, repeat=0.0)
    assert noise.error[2] > 0.35
    assert noise.error[:2].max() < 0.1
    assert noise.confusion[2, 1] > 2 * noise.confusion[2, 0]


def test_gold_alone_says_how_a_teacher_errs() -> None:
    truth = draw_truth(400, 4, 12)
    votes = simulated_votes(truth, 4, 0.3, 1, seed=13)
    noise = fit_noise(votes, one_hot(truth, 4), is_gold=np.ones(400, dtype=bool), repeat=0.0)
    assert noise.error.mean() == pytest.approx(0.3, abs=0.05)
    assert noise.doubt == pytest.approx(4 * UNKNOWN_ROWS / (400 + 4 * UNKNOWN_ROWS)), "nothing more is fitted"


def test_a_student_of_few_rows_leaves_every_right_vote_trusted() -> None:
    """100 rows of 20 labels: a student that has seen four of each errs out of fold on three in ten, and is sure of
    them."""
    rng, truth = np.random.default_rng(1), np.arange(100) % 20
    rows = rng.standard_normal((20, 32))[truth] + rng.standard_normal((100, 32))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    folds = rng.permutation(100) % 5
    beliefs = weigh_votes(rows, one_hot(truth, 20), folds, is_gold=np.zeros(100, dtype=np.bool_))
    assert 0.5 < (beliefs.predicted.argmax(axis=1) == truth).mean() < 0.9
    assert beliefs.believed.max(axis=1).min() >= 0.6


def test_a_teacher_with_one_answer_for_everything_is_survived() -> None:
    truth = draw_truth(200, 3, 14)
    votes = np.tile([0.0, 1.0, 0.0], (200, 1))
    noise = fit_noise(votes, np.full((200, 3), 1 / 3), is_gold=np.zeros(200, dtype=bool), repeat=1.0)
    believed = posteriors(votes, np.full((200, 3), 1 / 3), noise)
    assert np.isfinite(believed).all()
    assert (believed.argmax(axis=1) == 1).all()
    is_gold = np.arange(200) < 60
    prior = np.where(is_gold[:, None], one_hot(truth, 3), 1 / 3)
    warned = fit_noise(votes, prior, is_gold=is_gold, repeat=1.0)
    assert warned.error[[0, 2]].min() > 0.5


def test_without_votes_the_noise_is_what_was_expected() -> None:
    noise = fit_noise(np.zeros((4, 3)), np.full((4, 3), 1 / 3), is_gold=np.zeros(4, dtype=bool), repeat=2.0)
    np.testing.assert_allclose(noise.confusion, [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]])
    assert noise.repeat == 1.0


def test_one_label_leaves_nothing_to_doubt() -> None:
    votes, prior = np.array([[1.0], [0.0]]), np.ones((2, 1))
    noise = fit_noise(votes, prior, is_gold=np.zeros(2, dtype=bool), repeat=0.0)
    np.testing.assert_array_equal(posteriors(votes, prior, noise), [[1.0], [1.0]])


def test_equal_rows_with_different_votes_are_each_judged() -> None:
    truth = draw_truth(100, 2, 15)
    prior = simulated_student(truth, 2, 0.9, 0.8, 16)
    prior[:2], votes = prior[0], simulated_votes(truth, 2, 0.05, 1, seed=17)
    votes[:2] = np.eye(2)
    believed = posteriors(votes, prior, fit_noise(votes, prior, is_gold=np.zeros(100, dtype=bool), repeat=0.5))
    assert believed[0].argmax() == 0
    assert believed[1].argmax() == 1


def test_no_order_of_the_rows_changes_the_noise() -> None:
    truth = draw_truth(200, 4, 18)
    votes, prior = simulated_votes(truth, 4, 0.1, 2, seed=19), simulated_student(truth, 4, 0.8, 0.8, 20)
    is_gold, order = np.zeros(200, dtype=bool), np.random.default_rng(0).permutation(200)
    here = fit_noise(votes, prior, is_gold=is_gold, repeat=0.2)
    there = fit_noise(votes[order], prior[order], is_gold=is_gold, repeat=0.2)
    np.testing.assert_allclose(there.confusion, here.confusion, atol=1e-12)
    assert there.doubt == here.doubt


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 5), st.floats(0, 1))
def test_beliefs_are_probabilities(seed: int, n: int, n_labels: int, repeat: float) -> None:
    rng = np.random.default_rng(seed)
    votes = rng.integers(0, 3, (n, n_labels)).astype(float)
    prior, is_gold = rng.dirichlet(np.full(n_labels, 0.3), n), rng.random(n) < 0.3
    prior[is_gold] = np.eye(n_labels)[prior[is_gold].argmax(axis=1)]
    noise = fit_noise(votes, prior, is_gold=is_gold, repeat=repeat)
    believed = posteriors(votes, prior, noise)
    np.testing.assert_allclose(believed.sum(axis=1), 1)
    np.testing.assert_allclose(noise.confusion.sum(axis=1), 1)
    assert (believed >= 0).all()
    for label, other in itertools.pairwise(range(n_labels)):
        more = votes.copy()
        more[:, label] += 1
        gains = posteriors(more, prior, Noise(confusion=noise.confusion, error=noise.error, repeat=0.0))
        before = posteriors(votes, prior, Noise(confusion=noise.confusion, error=noise.error, repeat=0.0))
        if noise.confusion[label, label] > noise.confusion[other, label]:
            assert (gains[:, label] * before[:, other] >= before[:, label] * gains[:, other] - 1e-9).all()
