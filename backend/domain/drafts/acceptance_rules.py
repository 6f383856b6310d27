"""How much of a draft is kept, by log-probs, so that what comes out is distributed as the teacher's own answer.

Notation: the draft x_1 ... x_L (its end is a token) was sampled from q = teacher(. | old prompt); the target is
p = teacher(. | new prompt). A rule keeps x_1 ... x_n; where n < L the next token is drawn from its residual, and the
teacher writes the rest from there. It is exact when the whole of that is distributed as p.

A rule is a law: the probability of every place to stop at, with the residual to draw from there. So a proof can
enumerate it, and `settle` draws from it with one uniform number.

All distributions are the ones that are sampled from: temperature and top-k applied (`processed`), summing to one. If a
draft really comes from another distribution than the q that its rule is told (chosen by its text or score, logged at
another temperature, of another revision), the output is off by at most the total variation between the two, whatever
the rule: data processing. Only the point mass needs no q at all.

    rule             exact where                                                       source
    token            q and p are known at every place                                  arXiv 2302.01318, 2211.17192
    point mass       p is known at every place; any draft, however chosen              a proposal that is one token
    argmax           temperature 0
    block            as token, never keeps less                                        draft_rules_blocks
    stored q(x_i)    q is asked for again at the one place where the draft stops       draft_rules_stored
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
class Stop:
    """One outcome: exactly the first `n_kept` tokens are kept. `residual` is None where all of them are."""

    n_kept: int
    probability: float
    residual: Distribution | None


Law = tuple[Stop, ...]


def token_rule(tokens: Sequence[str], target: Sequence[Distribution], drafted: Sequence[Distribution]) -> Law:
    """Keep x_i with probability min(1, p(x_i)/q(x_i)); the residual is (p - q)+, renormalised. Exact where the draft is
    a sample of `drafted` (arXiv 2302.01318, theorem 1). Raises ImpossibleDraft.

    >>> law = token_rule(["a"], [{"a": 0.5, "b": 0.5}], [{"a": 1.0}])
    >>> [(stop.n_kept, stop.probability) for stop in law], law[0].residual
    ([(0, 0.5), (1, 0.5)], {'b': 1.0})
    """
    return chain([token_step(x, p, q) for x, p, q in zip(tokens, target, drafted, strict=True)])


def point_mass_rule(tokens: Sequence[str], target: Sequence[Distribution]) -> Law:
    """Keep x_i with probability p(x_i); the residual is p without x_i, renormalised. Exact for any draft, wherever it
    comes from: it is the token rule for a proposal that could be nothing else."""
    return chain([point_step(x, p) for x, p in zip(tokens, target, strict=True)])


def argmax_rule(tokens: Sequence[str], places: Sequence[Distribution]) -> int:
    """How many tokens are kept at temperature 0: up to the first that is not likelier than every other. Exact where the
    teacher then goes on itself: where two tokens tie, what it would draw does not depend on the draft. Log-probs of any
    temperature will do, for only their order counts."""
    for n, (token, place) in enumerate(zip(tokens, places, strict=True)):
        if token not in place or any(place[token] <= p for other, p in place.items() if other != token):
            return n
    return len(tokens)


def token_step(token: str, target: Distribution, drafted: Distribution) -> Step:
    q = drafted.get(token, 0.0)
    if q <= 0:
        raise ImpossibleDraft("a token of the draft has no probability under the distribution that it was drawn from")
    return Step(acceptance=min(1.0, target.get(token, 0.0) / q), residual=token_residual(target, drafted))


def point_step(token: str, target: Distribution) -> Step:
    rest = {name: p for name, p in target.items() if name != token}
    return Step(acceptance=min(1.0, target.get(token, 0.0)), residual=normalised(rest))


def token_residual(target: Distribution, drafted: Distribution, weight: float = 1.0) -> Distribution | None:
    """(weight * p - q)+, renormalised; None where it is empty."""
    return normalised({x: max(0.0, weight * p - drafted.get(x, 0.0)) for x, p in target.items()})


def normalised(masses: Mapping[str, float]) -> Distribution | None:
    total = sum(masses.values())
    return {x: mass / total for x, mass in masses.items() if mass > 0} if total > 0 else None


def chain(steps: Sequence[Step]) -> Law:
    """The law of looking at one place after another and stopping at the first token that is not kept."""
    stops: list[Stop] = []
    reached = 1.0
    for n, step in enumerate(steps):
        stops.append(Stop(n_kept=n, probability=reached * (1.0 - step.acceptance), residual=step.residual))
        reached *= step.acceptance
    return (*stops, Stop(n_kept=len(steps), probability=reached, residual=None))


def settle(law: Law, u: float) -> Stop:
    """The outcome at `u`, uniform on [0, 1)."""
    for stop in law:
        u -= stop.probability
        if u < 0:
            return stop
    return max(law, key=lambda stop: stop.probability)  # u was within rounding of one
