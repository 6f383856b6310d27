"""A row's label, by the votes of a noisy teacher and the student's out-of-fold probabilities.

    P(y | x, votes) is proportional to prior(y | x) * product over votes of confusion[y, vote]^(1 / (1 + (m - 1) r))

The teacher's confusion is fitted by EM (Dawid & Skene 1979), with the student's probabilities as the prior of each row
(Raykar et al. 2010; with one label a row: Khetan, Lipton, Anandkumar 2018). A teacher that repeats itself gives m votes
that are worth m / (1 + (m - 1) r) (Kish 1965).

One vote each does not say who errs where teacher and student differ. The teacher is believed: the student's
probabilities are first mixed with doubt, as much of it as they need to fit a teacher that errs with PRIOR_ERROR.
"""

from dataclasses import dataclass

import numpy as np

from backend.domain.labeling.linear_head import Flags, Floats

STEPS = 10  # of EM
PRIOR_ERROR, PRIOR_ROWS = 0.1, 20.0  # Beta(2, 18) of the teacher's error, and each label's about that of all
UNIFORM_SHARE = 0.5  # of where wrong answers are expected; the rest is where the student errs
STUDENT_ROWS = 5.0  # of a label, from which on the student's errors count more than its few rows' chance
WRONG_ROWS = 20.0  # wrong answers of a label that outweigh what was expected of them
GREATEST_PRIOR = 0.95  # of a student's probability: what is left is shared by the other labels at least
DOUBTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)  # shares of a student's probabilities that are spread evenly
_TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """`confusion` (L, L): rows true, columns answered, each row summing to 1; `error` (L,) is 1 less its diagonal;
    `repeat` the correlation of a teacher's repeated answers, 0 to 1; `doubt` the share of the student's probabilities
    that is spread over all labels."""

    confusion: Floats
    error: Floats
    repeat: float
    doubt: float = 0.0


def fit_noise(votes: Floats, prior: Floats, *, is_gold: Flags, repeat: float) -> Noise:
    """Return the teacher's noise by `votes` (n, L) counts and the student's out-of-fold `prior` (n, L); the prior of a
    gold row is its label, one-hot. Without votes it is the prior's: PRIOR_ERROR for every label."""
    n_labels = votes.shape[1]
    is_asked = votes.sum(axis=1) > 0
    votes, prior, is_gold = votes[is_asked], prior[is_asked], is_gold[is_asked]
    error = np.full(n_labels, PRIOR_ERROR if n_labels > 1 else 0.0)
    aside = np.full((n_labels, n_labels), 1 / max(1, n_labels - 1))
    noise = _noise(error, aside, min(max(float(repeat), 0.0), 1.0), 0.0)
    if n_labels < 2 or not len(votes):
        return noise
    noise = _noise(error, aside, noise.repeat, _fitted_doubt(votes, prior, is_gold, noise))
    counted = votes * _worth(votes, noise.repeat)[:, None]
    for _ in range(STEPS):
        believed = posteriors(votes, prior, noise)
        believed[is_gold] = np.eye(n_labels)[prior[is_gold].argmax(axis=1)]
        error = _errors(believed, counted)
        noise = _noise(error, _aside(believed, prior, counted, is_gold), noise.repeat, noise.doubt)
    return noise


def posteriors(votes: Floats, prior: Floats, noise: Noise, *, scores: Floats | None = None) -> Floats:
    """`(n, L)` probabilities of each row's label, each row summing to 1.

    `votes` (n, L) counts; `prior` (n, L) of `cross_predict`; a row whose prior is one-hot (gold) keeps it, and one
    without a vote has the prior, clipped. `scores` (n, L) are log-probabilities that the teacher gave the labels in an
    answer, NaN where it gave none: they count as one vote more, divided among the labels as they say."""
    if scores is not None:
        shares = np.where(np.isnan(scores), 0.0, np.exp(scores))
        votes = votes + shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    logs = np.log(_weak_prior(prior, noise.doubt))
    logs += (votes * _worth(votes, noise.repeat)[:, None]) @ np.log(np.maximum(noise.confusion, _TINY)).T
    logs -= logs.max(axis=1, keepdims=True)
    believed = np.exp(logs)
    believed /= believed.sum(axis=1, keepdims=True)
    is_unasked = votes.sum(axis=1) == 0
    believed[is_unasked] = _weak_prior(prior[is_unasked], noise.doubt)
    is_known = prior.max(axis=1) >= 1.0
    believed[is_known] = prior[is_known]
    return np.asarray(believed)


def _worth(votes: Floats, repeat: float) -> Floats:
    """The worth of one of a row's votes beside the others."""
    return np.asarray(1 / (1 + np.maximum(votes.sum(axis=1) - 1, 0) * repeat))


def _weak_prior(prior: Floats, doubt: float) -> Floats:
    n_labels = prior.shape[1]
    if n_labels < 2:
        return prior
    clipped = np.clip(prior, (1 - GREATEST_PRIOR) / (n_labels - 1), GREATEST_PRIOR)
    clipped *= (1 - doubt) / clipped.sum(axis=1, keepdims=True)
    return np.asarray(clipped + doubt / n_labels)


def _noise(error: Floats, aside: Floats, repeat: float, doubt: float) -> Noise:
    confusion = error[:, None] * aside
    np.fill_diagonal(confusion, 1 - error)
    return Noise(confusion=confusion, error=error, repeat=repeat, doubt=doubt)


def _fitted_doubt(votes: Floats, prior: Floats, is_gold: Flags, noise: Noise) -> float:
    """The doubt at which prior and confusion make the votes likeliest; gold rows say nothing of the student."""
    votes, prior = votes[~is_gold], prior[~is_gold]
    logs = (votes * _worth(votes, noise.repeat)[:, None]) @ np.log(np.maximum(noise.confusion, _TINY)).T
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))

    def likelihood(doubt: float) -> float:
        return float(np.log((_weak_prior(prior, doubt) * likelihoods).sum(axis=1)).sum())

    return max(DOUBTS, key=lambda doubt: (round(likelihood(doubt), 9), -doubt))


def _errors(believed: Floats, counted: Floats) -> Floats:
    """Each label's share of wrong votes, drawn towards that of all by PRIOR_ROWS, and that towards PRIOR_ERROR."""
    asked = believed.T @ counted
    n_votes, wrong = asked.sum(axis=1), asked.sum(axis=1) - np.diag(asked)
    overall = (PRIOR_ERROR * PRIOR_ROWS + wrong.sum()) / (PRIOR_ROWS + n_votes.sum())
    return np.asarray((overall * PRIOR_ROWS + wrong) / (PRIOR_ROWS + n_votes))


def _aside(believed: Floats, prior: Floats, counted: Floats, is_gold: Flags) -> Floats:
    """`(L, L)` where wrong answers go, rows summing to 1 beside the diagonal: as they did, drawn by WRONG_ROWS towards
    an expectation that is in part the same everywhere and in part where the student errs. A wrong answer counts where
    the row is gold or another of its votes is the label; else the student would be evidence for itself."""
    n_labels = prior.shape[1]
    student = _shares(believed.T @ prior + STUDENT_ROWS / (n_labels - 1))
    expected = UNIFORM_SHARE / (n_labels - 1) + (1 - UNIFORM_SHARE) * student
    borne_out = np.where((counted > 0) | is_gold[:, None], believed, 0.0)
    return _shares(borne_out.T @ counted + WRONG_ROWS * expected)


def _shares(counts: Floats) -> Floats:
    np.fill_diagonal(counts, 0.0)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
