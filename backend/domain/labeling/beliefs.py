"""The sum of what votes say: the label of each row by its votes and a student that has not seen it, and the
teacher's errors by where the two differ."""

from dataclasses import dataclass

import numpy as np

from backend.domain.labeling.folds import cross_predict
from backend.domain.labeling.linear_head import Flags, Floats, Ints
from backend.domain.labeling.posteriors import Noise, fit_noise, posteriors, student_prior
from backend.domain.labeling.repeats import repeat_of
from backend.domain.labeling.temperatures import fit_temperature, temper

TWIN = 0.95  # the probability that a row has the label of its gold twin


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """`believed` (n, L) the posteriors of the rows and `predicted` (n, L) what a student says of each that has not seen
    it nor a near-duplicate. `temperature` is that of the teacher's scores, None without any."""

    believed: Floats
    predicted: Floats
    noise: Noise
    temperature: float | None = None


def weigh_votes(
    rows: Floats,
    votes: Floats,
    folds: Ints,
    *,
    is_gold: Flags,
    scores: Floats | None = None,
    twins: Ints | None = None,
) -> Beliefs:
    """Weigh `votes` (n, L) on `rows` (n, d), each of which has at least one; of a gold row they are its label, which is
    certain. `folds` (n,) as of `fold_of`. The students learn from the shares of the votes. `scores` (n, L) are the
    teacher's log-probs of the labels, NaN where it gave none; `twins` (n,) the label of a gold row that is nearly the
    same, -1 where there is none."""
    targets = votes / np.maximum(votes.sum(axis=1, keepdims=True), 1.0)
    predicted = cross_predict(rows, targets, folds) if len(rows) else targets
    prior = np.where(is_gold[:, None], targets, predicted)
    counted = np.where(is_gold[:, None], 0.0, votes)
    noise = fit_noise(counted, prior, is_gold=is_gold, repeat=0.0)
    repeat = repeat_of(counted, posteriors(counted, prior, noise), noise)
    noise = fit_noise(counted, prior, is_gold=is_gold, repeat=repeat)
    if scores is None or np.isnan(scores).all():
        return Beliefs(believed=posteriors(counted, prior, noise), predicted=predicted, noise=noise)
    evidence = student_prior(predicted, noise)
    if twins is not None and votes.shape[1] > 1:
        known = np.where(np.eye(votes.shape[1])[twins] > 0, TWIN, (1 - TWIN) / (votes.shape[1] - 1))
        evidence = np.where(twins[:, None] >= 0, known, evidence)
    temperature = fit_temperature(scores, evidence)
    believed = posteriors(counted, prior, noise, shares=temper(scores, temperature))
    return Beliefs(believed=believed, predicted=predicted, noise=noise, temperature=temperature)
