"""Acceptance rules: how much of a draft is kept, by log-probs, so that what comes out is distributed as the teacher's
own answer.

Notation: the draft x_1 ... x_L (its end is a token) was sampled from q = teacher(. | old prompt); the target is
p = teacher(. | new prompt). A rule keeps x_1 ... x_n; where n < L the next token is drawn from its residual, and the
teacher writes the rest from there. It is exact when the whole of that is distributed as p.

A rule is a `StopDistribution`: the probability of every place to stop at, with the residual to draw from there. So a
proof can enumerate it, and `sample_stop` draws from it with one uniform number.

All distributions are the ones that are sampled from: temperature and top-k applied (`process_logprobs`), summing to
one. If a draft really comes from another distribution than the q that its rule reads (chosen by its text or score,
logged at another temperature, of another revision), the output is off by at most the total variation between the two,
whatever the rule: data processing. Only the point mass needs no q at all.

    rule             exact where                                                       source
    token            q and p are known at every place                                  arXiv 2302.01318, 2211.17192
    point mass       p is known at every place; any draft, however chosen              a proposal that is one token
    argmax           temperature 0
    block            as token, never keeps less                                        `block_rule`, arXiv 2403.10444
    stored q(x_i)    q is asked for again at the one place where the draft stops       `stored_acceptance`

The last is the token rule where only log q(x_i) of the drawn tokens is stored, in float16: 2 bytes a token instead of a
distribution. Whether a token is kept needs no more. The residual needs all of q at the place where the draft stops,
which is asked for again under the old prompt: one request, and only where a draft stops.

float16 rounds log q by up to one part in 2,048, and a rule that took the rounded number for q would be off by about
2^-11 times the entropy of each place. So the rule is another one: keep x with probability

    a(x) = min(1, p(x) / q^(x)),  log q^(x) = the next float16 above round16(log q(x)),  at most 0

As q^ >= q, q a <= p everywhere, and the residual p - q a, whose sum is exactly the chance of stopping, makes the output
p: exact, not up to rounding. Its price is a chance of at most about 2^-10 |log q(x)| a token of stopping in vain.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Distribution = Mapping[str, float]


class ImpossibleDraft(ValueError):
    """A token that its own distribution gives no probability: the draft was not sampled from what it is said to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One place: the probability that its token is kept, and what the token is drawn from where it is not (None where
    that is not known, or cannot happen)."""

    acceptance: float
    residual: Distribution | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOutcome:
    """One outcome: exactly the first `n_kept` tokens are kept. `residual` is None where all of them are."""

    n_kept: int
    probability: float
    residual: Distribution | None


StopDistribution = tuple[StopOutcome, ...]


def argmax_rule(tokens: Sequence[str], places: Sequence[Distribution]) -> int:
    """Return how many tokens are kept at temperature 0: up to the first that is not likelier than every other. Exact
    where the teacher then goes on itself: where two tokens tie, what it would draw does not depend on the draft.
    Log-probs of any temperature will do, for only their order counts."""
    for n, (token, place) in enumerate(zip(tokens, places, strict=True)):
        if token not in place or any(place[token] <= p for other, p in place.items() if other != token):
            return n
    return len(tokens)


def block_rule(
    tokens: Sequence[str], target: Sequence[Distribution], drafted: Sequence[Distribution]
) -> StopDistribution:
    """Judge a block as a whole, which never keeps fewer tokens in expectation than one token at a time (Sun et al.
    2024, arXiv 2403.10444, Algorithm 2): keep the longest prefix whose coin falls. With w_0 = 1, w_i = min(1, w_{i-1}
    p(x_i)/q(x_i)), and Z_i = sum_x (w_i p(x) - q(x))+ over the token after the first i:

        h_i = Z_i / (Z_i + 1 - w_i) for i < L,  h_L = w_L,  n = the largest i whose coin u_i <= h_i, else 0

    and where n < L the next token is drawn from (w_n p - q)+, renormalised. Exact where the block is a sample of
    `drafted`; blocks may follow each other, and a block may end at any place that the tokens before it decide on.
    Raises ImpossibleDraft.
    """
    weights = _weights(tokens, target, drafted)
    accepted = [_block_acceptance(w, p, q) for w, p, q in zip(weights, target, drafted, strict=False)] + [weights[-1]]
    accepted[0] = 1.0  # nothing kept: what is left when no coin fell
    stops: list[StopOutcome] = []
    missed = 1.0
    for n in range(len(tokens), -1, -1):
        residual = None if n == len(tokens) else token_residual(target[n], drafted[n], weights[n])
        stops.append(StopOutcome(n_kept=n, probability=missed * accepted[n], residual=residual))
        missed *= 1.0 - accepted[n]
    return tuple(reversed(stops))


def _weights(tokens: Sequence[str], target: Sequence[Distribution], drafted: Sequence[Distribution]) -> list[float]:
    weights = [1.0]
    for token, p, q in zip(tokens, target, drafted, strict=True):
        if q.get(token, 0.0) <= 0:
            raise ImpossibleDraft("a token of the draft has no probability under the distribution it was drawn from")
        weights.append(min(1.0, weights[-1] * p.get(token, 0.0) / q[token]))
    return weights


def _block_acceptance(weight: float, target: Distribution, drafted: Distribution) -> float:
    excess = sum(max(0.0, weight * p - drafted.get(x, 0.0)) for x, p in target.items())
    # 0/0 where p = q follows a certain prefix: a later coin falls then, whatever is said here
    return excess / (excess + (1.0 - weight)) if excess > 0 else 0.0


def ceiling(logprob: float) -> float:
    """The next float16 above `logprob` as float16 stores it, at most 0: never below the value that was stored.

    >>> ceiling(-1.0), ceiling(-1e-12)
    (-0.99951171875, 0.0)
    """
    return min(0.0, float(np.nextafter(np.float16(logprob), np.float16(np.inf))))


def stored_acceptance(target_probability: float, stored_logprob: float) -> float:
    """a(x) of the drawn token, from p(x) and the stored log q(x)."""
    return min(1.0, target_probability / math.exp(ceiling(stored_logprob)))


def stored_residual(target: Distribution, drafted: Distribution) -> Distribution | None:
    """p - q a, renormalised; `drafted` is q as it was asked for again, in full precision. None where it is empty."""
    return normalise({x: max(0.0, p - _kept_mass(p, drafted.get(x, 0.0))) for x, p in target.items()})


def _kept_mass(p: float, q: float) -> float:
    return q * stored_acceptance(p, math.log(q)) if q > 0 else 0.0


def agrees(stored_logprob: float, logprob: float) -> bool:
    """Return whether the log q(x) that was asked for again is the one that was stored: within one step of float16. If
    not, the teacher is no longer the one that wrote the draft."""
    stored = np.float16(stored_logprob)
    below, above = (float(np.nextafter(stored, np.float16(side))) for side in (-np.inf, np.inf))
    return below <= float(np.float16(logprob)) <= above


def token_step(token: str, target: Distribution, drafted: Distribution) -> Step:
    q = drafted.get(token, 0.0)
    if q <= 0:
        raise ImpossibleDraft("a token of the draft has no probability under the distribution that it was drawn from")
    return Step(acceptance=min(1.0, target.get(token, 0.0) / q), residual=token_residual(target, drafted))


def point_step(token: str, target: Distribution) -> Step:
    rest = {name: p for name, p in target.items() if name != token}
    return Step(acceptance=min(1.0, target.get(token, 0.0)), residual=normalise(rest))


def token_residual(target: Distribution, drafted: Distribution, weight: float = 1.0) -> Distribution | None:
    """(weight * p - q)+, renormalised; None where it is empty."""
    return normalise({x: max(0.0, weight * p - drafted.get(x, 0.0)) for x, p in target.items()})


def normalise(masses: Mapping[str, float]) -> Distribution | None:
    total = sum(masses.values())
    return {x: mass / total for x, mass in masses.items() if mass > 0} if total > 0 else None


def chain(steps: Sequence[Step]) -> StopDistribution:
    """The stops of looking at one place after another and stopping at the first token that is not kept."""
    stops: list[StopOutcome] = []
    reached = 1.0
    for n, step in enumerate(steps):
        stops.append(StopOutcome(n_kept=n, probability=reached * (1.0 - step.acceptance), residual=step.residual))
        reached *= step.acceptance
    return (*stops, StopOutcome(n_kept=len(steps), probability=reached, residual=None))


def sample_stop(stops: StopDistribution, u: float) -> StopOutcome:
    """The outcome at `u`, uniform on [0, 1)."""
    for stop in stops:
        u -= stop.probability
        if u < 0:
            return stop
    return max(stops, key=lambda stop: stop.probability)  # u was within rounding of one
