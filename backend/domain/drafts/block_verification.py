"""Block verification: a block of a draft is judged as a whole, which never keeps fewer tokens in expectation than one
token at a time (Sun et al. 2024, arXiv 2403.10444, Algorithm 2)."""

from collections.abc import Sequence

from backend.domain.drafts.acceptance_rules import Distribution, ImpossibleDraft, Law, Stop, token_residual


def block_rule(tokens: Sequence[str], target: Sequence[Distribution], drafted: Sequence[Distribution]) -> Law:
    """Keep the longest prefix whose coin falls. With w_0 = 1, w_i = min(1, w_{i-1} p(x_i)/q(x_i)), and
    Z_i = sum_x (w_i p(x) - q(x))+ over the token after the first i:

        h_i = Z_i / (Z_i + 1 - w_i) for i < L,  h_L = w_L,  n = the largest i whose coin u_i <= h_i, else 0

    and where n < L the next token is drawn from (w_n p - q)+, renormalised. Exact where the block is a sample of
    `drafted`; blocks may follow each other, and a block may end at any place that the tokens before it decide on.
    Raises ImpossibleDraft.
    """
    weights = _weights(tokens, target, drafted)
    accepted = [_acceptance(w, p, q) for w, p, q in zip(weights, target, drafted, strict=False)] + [weights[-1]]
    accepted[0] = 1.0  # nothing kept: what is left when no coin fell
    stops: list[Stop] = []
    missed = 1.0
    for n in range(len(tokens), -1, -1):
        residual = None if n == len(tokens) else token_residual(target[n], drafted[n], weights[n])
        stops.append(Stop(n_kept=n, probability=missed * accepted[n], residual=residual))
        missed *= 1.0 - accepted[n]
    return tuple(reversed(stops))


def _weights(tokens: Sequence[str], target: Sequence[Distribution], drafted: Sequence[Distribution]) -> list[float]:
    weights = [1.0]
    for token, p, q in zip(tokens, target, drafted, strict=True):
        if q.get(token, 0.0) <= 0:
            raise ImpossibleDraft("a token of the draft has no probability under the distribution it was drawn from")
        weights.append(min(1.0, weights[-1] * p.get(token, 0.0) / q[token]))
    return weights


def _acceptance(weight: float, target: Distribution, drafted: Distribution) -> float:
    excess = sum(max(0.0, weight * p - drafted.get(x, 0.0)) for x, p in target.items())
    # 0/0 where p = q follows a certain prefix: a later coin falls then, whatever is said here
    return excess / (excess + (1.0 - weight)) if excess > 0 else 0.0
