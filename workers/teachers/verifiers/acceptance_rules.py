"""The rule that a draft is verified by, and the place where one chunk of it stops under that rule.

The rule must not depend on the draft's own tokens, or the choice itself would bias what comes out. It follows from
what the teacher tells and what is asked for; within a draft, a place that is not known whole goes by the point mass,
which is decided by the tokens before it.
"""

from collections.abc import Sequence
from enum import StrEnum

from backend.domain.drafts.acceptance_rules import (
    Step,
    StopDistribution,
    StopOutcome,
    block_rule,
    chain,
    point_step,
    stored_acceptance,
    token_step,
)
from workers.teachers.verifiers.token_scores import TokenDistribution


class Rule(StrEnum):
    """The rules, in order of what they ask of the teacher, least first."""

    ARGMAX = "argmax"  # temperature 0: the new prompt's score
    POINT = "point"  # the new prompt's score
    STORED = "stored"  # that, the stored log q(x_i), and the old prompt's score where the draft stops
    TOKEN = "token"  # the score under both prompts
    BLOCK = "block"  # the score under both prompts


def chunk_stops(
    rule: Rule,
    names: Sequence[str],
    new: Sequence[TokenDistribution],
    old: Sequence[TokenDistribution] | None,
    stored: Sequence[float] | None,
) -> StopDistribution:
    """The stops of one chunk. `old` are its places under the old prompt, `stored` its log q(x_i), where the rule needs
    them. A stop without a residual is one where the next token has to be asked for."""
    if rule is Rule.STORED and stored is not None:
        steps = [
            Step(acceptance=stored_acceptance(place.probability, logprob), residual=None)
            for place, logprob in zip(new, stored, strict=True)
        ]
        return chain(steps)
    if old is None:
        return chain([_point(name, place) for name, place in zip(names, new, strict=True)])
    if rule is Rule.BLOCK:
        return _blocks(names, new, old)
    return chain([_step(name, p, q) for name, p, q in zip(names, new, old, strict=True)])


def _step(name: str, new: TokenDistribution, old: TokenDistribution) -> Step:
    if new.whole is None or old.whole is None:
        return _point(name, new)
    return token_step(name, new.whole, old.whole)


def _point(name: str, new: TokenDistribution) -> Step:
    if new.whole is not None:
        return point_step(name, new.whole)
    return Step(acceptance=min(1.0, new.probability), residual=None)


def _blocks(
    names: Sequence[str], new: Sequence[TokenDistribution], old: Sequence[TokenDistribution]
) -> StopDistribution:
    """Blocks of places that are known whole under both prompts, with single places between them."""
    stops: list[StopOutcome] = []
    reached, at = 1.0, 0
    while at < len(names):
        end = at
        while end < len(names) and new[end].whole is not None and old[end].whole is not None:
            end += 1
        if end == at:
            *inner, kept = chain([_point(names[at], new[at])])
            end = at + 1
        else:
            target = [place.whole or {} for place in new[at:end]]
            drafted = [place.whole or {} for place in old[at:end]]
            *inner, kept = block_rule(names[at:end], target, drafted)
        stops += [
            StopOutcome(n_kept=at + s.n_kept, probability=reached * s.probability, residual=s.residual) for s in inner
        ]
        reached *= kept.probability
        at = end
    return (*stops, StopOutcome(n_kept=len(names), probability=reached, residual=None))
