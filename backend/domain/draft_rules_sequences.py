"""Rules for a draft as a whole: kept or not, nothing between. They need only two sums of log-probs."""

import math
from collections.abc import Sequence

from backend.domain.draft_rules import Distribution


def sequence_rule(target_logprob: float, drafted_logprob: float, *, m: float) -> float:
    """The probability of keeping the draft, min(1, p(x) / (M q(x))); one that is not kept is replaced by a fresh
    answer. Exact where M >= sup p/q; otherwise off by at most `excess_mass(p, q, m) / m`. About 1/M are kept."""
    return min(1.0, math.exp(min(0.0, target_logprob - drafted_logprob - math.log(m))))


def excess_mass(target: Distribution, drafted: Distribution, *, m: float) -> float:
    """delta_M = sum_x (p(x) - M q(x))+ over whole answers: what M does not cover."""
    return math.fsum(max(0.0, p - m * drafted.get(x, 0.0)) for x, p in target.items())


def typicality(score: float, fresh_scores: Sequence[float]) -> float:
    """Conformal p-value of a draft among fresh answers: the share of them, the draft counted in, that score no higher.

    A test and no sampling rule: refusing p <= alpha refuses an answer of the teacher's own in at most a share alpha of
    cases (exchangeability; Vovk, Gammerman and Shafer 2005), and says nothing of how far the accepted ones are from
    p. With n fresh answers the least p-value is 1/(n+1).

    >>> typicality(-3.0, [-1.0, -2.0, -5.0])
    0.5
    """
    return (1 + sum(fresh <= score for fresh in fresh_scores)) / (len(fresh_scores) + 1)
