"""The label of each row as the votes on all rows make it: the teacher's errors are estimated from where it differs from
a student that has not seen the row, and a row is trusted when its likeliest label is probable enough."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.compiles.models import Candidate
from backend.compiles.states import CandidateState
from backend.domain.labeling.beliefs import weigh_votes
from backend.domain.labeling.linear_head import Flags, Floats, Ints, LinearHead, fit_linear_head
from backend.domain.labeling.posteriors import Noise
from backend.domain.labeling.rounds import Why
from backend.domain.spec.parsing import votes_as_needed
from workers.labeling.pool import LabelPool
from workers.step.durable import CompileRun

PPM = 1_000_000
LEAST_TARGET = 0.02  # of a label's probability; a student is not trained on less
STUDENT_C = 10.0  # of the head that asks for the next rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """The votes, weighed. `known` (k,) are the rows of the pool that have a label, gold among them; `believed`
    (k, L) their posteriors and `predicted` (k, L) what a student says that has not seen them. `temperature` is that of
    the teacher's log-probs, None where it gave none."""

    pool: LabelPool
    known: Ints
    believed: Floats
    predicted: Floats
    noise: Noise
    temperature: float | None = None

    @property
    def is_asked(self) -> Flags:
        """`(n,)` the candidates that were asked about, whatever came of it."""
        asked = (CandidateState.LABELED, CandidateState.UNVERIFIED)
        return np.array([row.state in asked for row in self.pool.rows], dtype=np.bool_)

    @property
    def n_asked(self) -> int:
        return int(self.is_asked.sum())

    @property
    def n_votes(self) -> int:
        return int(self.pool.votes.sum())

    @property
    def is_scored(self) -> Flags:
        """`(k,)` where the teacher gave its log-probs of the labels."""
        return np.asarray(~np.isnan(self.pool.scores[self.known]).any(axis=1))

    @property
    def n_by_label(self) -> Ints:
        return np.bincount(self.believed.argmax(axis=1), minlength=len(self.pool.labels))

    @property
    def is_right(self) -> Flags:
        """`(k,)` where the student that has not seen the row agrees."""
        return np.asarray(self.predicted.argmax(axis=1) == self.believed.argmax(axis=1))

    @property
    def is_honest(self) -> Flags:
        """`(k,)` gold, and the rows that were drawn at random: the others were chosen by what the student thinks."""
        is_random = [row.bought_for == Why.RANDOM for row in self.pool.rows]
        return np.asarray((self.pool.is_gold | np.array(is_random + [False] * len(self.pool.places.gold)))[self.known])

    @property
    def accuracy(self) -> float:
        """The share of the rows that the student has right, of those that say something of traffic where there are
        enough; 0 without any."""
        honest = self.is_right[self.is_honest]
        shown = honest if len(honest) >= MIN_HONEST else self.is_right
        return float(shown.mean()) if len(shown) else 0.0

    @property
    def majority(self) -> float:
        """The share of the commonest label."""
        return float(self.n_by_label.max() / len(self.known)) if len(self.known) else 0.0

    def student(self) -> LinearHead:
        return fit_linear_head(self.pool.places.points.rows[self.known], self.believed, c=STUDENT_C)

    def probabilities(self) -> Floats:
        """`(n + g, L)` of every row of the pool, by the student that has learned from the labels so far."""
        return self.student().probabilities(self.pool.places.points.rows)


MIN_HONEST = 20  # rows below which their share says less than that of all rows


def weigh(pool: LabelPool) -> Weighed:
    """Weigh the votes of all rows that have some, with the gold rows beside them."""
    known = np.flatnonzero((pool.votes.sum(axis=1) > 0) | pool.is_gold)
    votes, is_gold = pool.votes[known], pool.is_gold[known]
    votes[is_gold] = pool.gold_targets
    beliefs = weigh_votes(
        pool.places.points.rows[known],
        votes,
        pool.places.folds[known],
        is_gold=is_gold,
        scores=pool.scores[known],
        twins=pool.gold_twins[known],
    )
    return Weighed(
        pool=pool,
        known=known,
        believed=beliefs.believed,
        predicted=beliefs.predicted,
        noise=beliefs.noise,
        temperature=beliefs.temperature,
    )


def targets_of(believed: Floats, labels: list[str]) -> dict[str, int]:
    """One row's probabilities as whole millionths that sum to 1,000,000, without what is under LEAST_TARGET; the
    likeliest label comes first.

    >>> targets_of(np.array([0.015, 0.735, 0.25]), ["a", "b", "c"])
    {'b': 746193, 'c': 253807}
    """
    order = sorted(range(len(labels)), key=lambda i: (-believed[i], i))
    kept = [i for i in order if believed[i] >= LEAST_TARGET] or order[:1]
    total = float(believed[kept].sum())
    shares = {labels[i]: round(float(believed[i]) / total * PPM) for i in kept[1:]}
    return {labels[kept[0]]: PPM - sum(shares.values())} | shares


def store(run: CompileRun, weighed: Weighed) -> list[Candidate]:
    """Save what the votes of each candidate amount to, and whether it is trusted, inside a transaction. Without
    `votes_as_needed` the votes alone decide, as the spec has it."""
    if not votes_as_needed(run.spec):
        return []
    changed = []
    for at, believed in zip(weighed.known.tolist(), weighed.believed, strict=True):
        row = weighed.pool.rows[at] if at < weighed.pool.n else None
        if row is None or row.state not in (CandidateState.LABELED, CandidateState.UNVERIFIED):
            continue
        targets = targets_of(believed, weighed.pool.labels)
        state = _state(row, max(targets.values()), round(run.spec.sampling.min_agreement * PPM))
        if (row.posterior, row.state) == (targets, state):
            continue
        if row.state != state:
            row.move(state)
        row.posterior, row.label, row.agreement_ppm = targets, next(iter(targets)), next(iter(targets.values()))
        changed.append(row)
    Candidate.objects.bulk_update(changed, ["posterior", "label", "agreement_ppm", "state"], batch_size=500)
    return changed


def _state(row: Candidate, most_ppm: int, least_ppm: int) -> CandidateState:
    return CandidateState.LABELED if most_ppm >= least_ppm else CandidateState.UNVERIFIED


def noise_facts(weighed: Weighed) -> dict[str, Any]:
    """The teacher's estimated errors as facts, in whole millionths."""
    error = {
        label: round(float(one) * PPM) for label, one in zip(weighed.pool.labels, weighed.noise.error, strict=True)
    }
    facts = {
        "error_ppm": error,
        "repeat_ppm": round(weighed.noise.repeat * PPM),
        "doubt_ppm": round(weighed.noise.doubt * PPM),
    }
    if weighed.temperature is not None:
        facts |= {"temperature_ppm": round(weighed.temperature * PPM), "n_scored": int(weighed.is_scored.sum())}
    return facts
