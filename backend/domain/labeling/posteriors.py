"""A row's label, by the votes of a noisy teacher and the student's out-of-fold probabilities.

    P(y | x, votes) is proportional to prior(y | x) * product over votes of confusion[y, vote]^(1 / (1 + (m - 1) r))

The teacher's confusion is fitted by EM (Dawid & Skene 1979), with the student's probabilities as the prior of each row
(Raykar et al. 2010; Khetan, Lipton, Anandkumar 2018). A teacher that repeats itself gives m votes that are worth
m / (1 + (m - 1) r) (Kish 1965).

One vote a row does not say who errs where teacher and student differ: a regularised student that is unsure of
everything would make every vote right. So the teacher errs with PRIOR_ERROR until gold or rows with several votes say
otherwise, which they do as far as it does not repeat itself: equal answers of one that always says the same are no
evidence. The student's probabilities are sharpened or mixed with doubt until they fit such a teacher, and with more
doubt where its rows are few for so many labels. A label that no vote names is never more probable than the
likeliest that one does: the row is unsure, and asked again.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from backend.domain.labeling.linear_head import Flags, Floats

STEPS = 10  # of EM
SINGLE_SHARE = (
    0.2  # what a row with one vote counts as evidence of errors; with 0 they are overrated, with 1 underrated
)
CALIBRATIONS = 2  # of the student, each followed by EM
PRIOR_ERROR, PRIOR_ROWS = 0.1, 20.0  # Beta(2, 18) of the teacher's error, and each label's about that of all
UNIFORM_SHARE = 0.5  # of where wrong answers are expected; the rest is where the student errs
STUDENT_ROWS = 5.0  # of a label, from which on the student's errors count more than its few rows' chance
WRONG_ROWS = 20.0  # wrong answers of a label that outweigh what was expected of them
GREATEST_PRIOR = 0.95  # of a student's probability: what is left is shared by the other labels at least
POWERS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # that a student's probabilities are raised to: C = 1 leaves them too flat
DOUBTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)  # shares of a student's probabilities that are spread evenly
UNKNOWN_ROWS = 15.0  # of each label: a student doubts by the share that these are of its rows and these together
_TINY = 1e-12
_LESS = 1 - 1e-9  # so that the label that a vote names is the likeliest


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """`confusion` (L, L): rows true, columns answered, each row summing to 1; `error` (L,) is 1 less its diagonal;
    `repeat` the correlation of a teacher's repeated answers, 0 to 1. The student's probabilities are raised to `power`,
    and then a share of `doubt` is spread over all labels."""

    confusion: Floats
    error: Floats
    repeat: float
    power: float = 1.0
    doubt: float = 0.0


def fit_noise(votes: Floats, prior: Floats, *, is_gold: Flags, repeat: float) -> Noise:
    """Return the teacher's noise by `votes` (n, L) counts and the student's out-of-fold `prior` (n, L); the prior of a
    gold row is its label, one-hot. Without gold that has votes or a row with two, it is PRIOR_ERROR for every label."""
    n_labels = votes.shape[1]
    least_doubt = UNKNOWN_ROWS * n_labels / (len(prior) + UNKNOWN_ROWS * max(n_labels, 1))
    is_asked = votes.sum(axis=1) > 0
    votes, prior, is_gold = votes[is_asked], prior[is_asked], is_gold[is_asked]
    error = np.full(n_labels, PRIOR_ERROR if n_labels > 1 else 0.0)
    aside = np.full((n_labels, n_labels), 1 / max(1, n_labels - 1))
    noise = Noise(confusion=_confusion(error, aside), error=error, repeat=min(max(float(repeat), 0.0), 1.0))
    if n_labels < 2 or not len(votes):
        return noise
    counted = votes * _worth(votes, noise.repeat)[:, None]
    has_more = is_gold | (votes.sum(axis=1) > 1)
    share = 0.0 if not has_more.any() else 1.0 if is_gold.any() else 1 - noise.repeat
    evidence = np.where(is_gold, 1.0, np.where(has_more, 1 - noise.repeat, SINGLE_SHARE * share))[:, None] * counted
    for _ in range(CALIBRATIONS):
        noise = _calibrate(noise, counted[~is_gold], prior[~is_gold], least_doubt=least_doubt)
        for _ in range(STEPS):
            believed = posteriors(votes, prior, noise)
            believed[is_gold] = np.eye(n_labels)[prior[is_gold].argmax(axis=1)]
            error = _errors(believed, evidence)
            aside = _aside(believed, prior, counted, is_gold)
            noise = replace(noise, confusion=_confusion(error, aside), error=error)
    return noise


def posteriors(votes: Floats, prior: Floats, noise: Noise, *, shares: Floats | None = None) -> Floats:
    """`(n, L)` probabilities of each row's label, each row summing to 1.

    `votes` (n, L) counts; `prior` (n, L) of `cross_predict`; a row whose prior is one-hot (gold) keeps it, and one
    without a vote has the prior, clipped. `shares` (n, L) are the probabilities that the teacher gave the labels in its
    first answer, tempered, NaN where it gave none: that answer counts as they say, and says no more than a vote."""
    n_votes = votes.sum(axis=1)
    is_unasked = n_votes == 0
    is_soft = np.zeros(len(votes), dtype=np.bool_) if shares is None else ~(np.isnan(shares).any(axis=1) | is_unasked)
    worth = _worth(votes, noise.repeat)[:, None]
    student = student_prior(prior, noise)
    hard = votes * np.where(is_soft, 1 - 1 / np.maximum(n_votes, 1.0), 1.0)[:, None]
    logs = np.log(student) + (hard * worth) @ np.log(np.maximum(noise.confusion, _TINY)).T
    is_named = votes > 0
    if shares is not None:
        first = shares[is_soft]
        logs[is_soft] += worth[is_soft] * np.log(np.maximum(first @ noise.confusion.T, _TINY))
        is_named[is_soft] |= first >= first.max(axis=1, keepdims=True, initial=0.0)
    logs -= logs.max(axis=1, keepdims=True)
    believed = np.exp(logs)
    best_named = np.where(is_named, believed, 0.0).max(axis=1, initial=0.0)
    believed = np.where(is_named | is_unasked[:, None], believed, np.minimum(believed, best_named[:, None] * _LESS))
    believed /= believed.sum(axis=1, keepdims=True)
    believed[is_unasked] = student[is_unasked]
    is_known = prior.max(axis=1) >= 1.0
    believed[is_known] = prior[is_known]
    return np.asarray(believed)


def student_prior(prior: Floats, noise: Noise) -> Floats:
    """`(n, L)` the student's probabilities at the power and doubt of the noise, clipped."""
    return _student_prior(prior, noise.power, noise.doubt)


def _worth(votes: Floats, repeat: float) -> Floats:
    """The worth of one of a row's votes beside the others."""
    return np.asarray(1 / (1 + np.maximum(votes.sum(axis=1) - 1, 0) * repeat))


def _student_prior(prior: Floats, power: float, doubt: float) -> Floats:
    n_labels = prior.shape[1]
    if n_labels < 2:
        return prior
    sharp = np.maximum(prior, _TINY) ** power
    sharp /= sharp.sum(axis=1, keepdims=True)
    clipped = np.clip(sharp, (1 - GREATEST_PRIOR) / (n_labels - 1), GREATEST_PRIOR)
    clipped *= (1 - doubt) / clipped.sum(axis=1, keepdims=True)
    return np.asarray(clipped + doubt / n_labels)


def _confusion(error: Floats, aside: Floats) -> Floats:
    confusion = error[:, None] * aside
    np.fill_diagonal(confusion, 1 - error)
    return confusion


def _calibrate(noise: Noise, counted: Floats, prior: Floats, *, least_doubt: float) -> Noise:
    """The noise with the power and doubt at which prior and confusion make the votes likeliest, and `least_doubt` at
    least: a student of few rows fits their votes better than it knows the labels."""
    logs = counted @ np.log(np.maximum(noise.confusion, _TINY)).T
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))

    def likelihood(power: float, doubt: float) -> float:
        return round(float(np.log((_student_prior(prior, power, doubt) * likelihoods).sum(axis=1)).sum()), 9)

    power, doubt = max(itertools.product(POWERS, DOUBTS), key=lambda at: (likelihood(*at), -at[0], -at[1]))
    return replace(noise, power=power, doubt=max(doubt, least_doubt))


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
