"""The token rule where only log q(x_i) of the drawn tokens is kept, in float16: 2 bytes a token instead of a
distribution.

Whether a token is kept needs no more. The residual needs all of q at the place where the draft stops, which is asked
for again under the old prompt: one request, and only where a draft stops.

float16 rounds log q by up to one part in 2,048, and a rule that took the rounded number for q would be off by about
2^-11 times the entropy of each place. So the rule is another one: keep x with probability

    a(x) = min(1, p(x) / q^(x)),  log q^(x) = the next float16 above round16(log q(x)),  at most 0

As q^ >= q, q a <= p everywhere, and the residual p - q a, whose sum is exactly the chance of stopping, makes the output
p: exact, not up to rounding. Its price is a chance of at most about 2^-10 |log q(x)| a token of stopping in vain.
"""

import math

import numpy as np

from backend.domain.drafts.acceptance_rules import Distribution, normalised


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
    return normalised({x: max(0.0, p - _kept_mass(p, drafted.get(x, 0.0))) for x, p in target.items()})


def _kept_mass(p: float, q: float) -> float:
    return q * stored_acceptance(p, math.log(q)) if q > 0 else 0.0


def agrees(stored_logprob: float, logprob: float) -> bool:
    """Whether the log q(x) that was asked for again is the one that was stored: within one step of float16. If not, the
    teacher is no longer the one that wrote the draft."""
    stored = np.float16(stored_logprob)
    below, above = (float(np.nextafter(stored, np.float16(side))) for side in (-np.inf, np.inf))
    return below <= float(np.float16(logprob)) <= above
