"""The distribution of the next token at one place of an answer, as a teacher tells it: some alternatives with
log-probs."""

import math
from collections.abc import Iterable, Mapping, Sequence

from backend.domain.drafts.acceptance_rules import Distribution

TOLERANCE = 1e-6


def whole_place(alternatives: Sequence[tuple[str, float]]) -> Distribution | None:
    """{token: probability}, renormalised, where the alternatives are the whole support: they sum to one within 1e-6 and
    no name stands for two tokens. None otherwise: a residual of a part of the support would be another distribution's.
    """
    place = {token: math.exp(logprob) for token, logprob in alternatives}
    total = math.fsum(place.values())
    if len(place) < len(alternatives) or abs(total - 1.0) > TOLERANCE:
        return None
    return {token: p / total for token, p in place.items() if p > 0}


def total_variation(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return how far two tellings of one place lie apart, from the log-probs of their alternatives: half the sum of the
    differences, what neither names counted as one token. Below the true one where they are not the whole support.

    >>> round(total_variation({"a": math.log(0.6), "b": math.log(0.4)}, {"a": math.log(0.5), "b": math.log(0.5)}), 9)
    0.1
    """
    named = [
        (math.exp(one[token]) if token in one else 0.0, math.exp(other[token]) if token in other else 0.0)
        for token in one.keys() | other.keys()
    ]
    unnamed = abs(math.fsum(p for p, _ in named) - math.fsum(q for _, q in named))
    return min(1.0, (math.fsum(abs(p - q) for p, q in named) + unnamed) / 2)


def process_logprobs(
    raw: Sequence[tuple[str, float]], *, temperature: float, top_k: int | None
) -> tuple[tuple[str, float], ...]:
    """Alternatives at temperature 1 as the ones that are sampled: the `top_k` likeliest (all where None), divided by
    the temperature and renormalised, best first. At 0 all mass is on the best. The order of equals is by token.

    vLLM tells raw log-probs by default, whatever it samples at; a rule cannot see that it was given those, and its
    output is biased.
    """
    ranked = sorted(raw, key=lambda pair: (-pair[1], pair[0]))[: None if top_k is None else top_k]
    if temperature <= 0:
        return tuple((token, 0.0) for token, _ in ranked[:1])
    scaled = [(token, logprob / temperature) for token, logprob in ranked]
    total = logsumexp(logprob for _, logprob in scaled)
    return tuple((token, logprob - total) for token, logprob in scaled)


def logsumexp(values: Iterable[float]) -> float:
    logs = list(values)
    top = max(logs, default=-math.inf)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(v - top) for v in logs))


def draw(place: Distribution, u: float) -> str:
    """The token at `u`, uniform on [0, 1); equal distributions give equal tokens, in whatever order they are told."""
    ranked = sorted(place.items())
    for token, p in ranked:
        u -= p
        if u < 0:
            return token
    return ranked[-1][0]
