"""The token rule with float16 at rest: exact, where taking the rounded number for q is not."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.acceptance_rules import (
    Distribution,
    Step,
    StopDistribution,
    agrees,
    ceiling,
    chain,
    stored_acceptance,
    stored_residual,
    token_residual,
)
from tests.backend.domain.drafts.draft_worlds import (
    Path,
    World,
    answers,
    chi_square_p,
    grammar_world,
    output_law,
    places,
    random_world,
    sampled,
    total_variation,
)


def stored_rule(tokens: Path, target: Sequence[Distribution], drafted: Sequence[Distribution]) -> StopDistribution:
    """As the verifier does it: from q only the stored number, until the draft stops."""
    steps = []
    for x, p, q in zip(tokens, target, drafted, strict=True):
        stored = float(np.float16(math.log(q[x])))
        steps.append(
            Step(acceptance=stored_acceptance(p.get(x, 0.0), stored), residual=stored_residual(p, q) if p else None)
        )
    return chain(steps)


def rounded_rule(tokens: Path, target: Sequence[Distribution], drafted: Sequence[Distribution]) -> StopDistribution:
    """The rounded number taken for q, the residual as if it had not been rounded."""
    steps = []
    for x, p, q in zip(tokens, target, drafted, strict=True):
        stored = math.exp(float(np.float16(math.log(q[x]))))
        steps.append(Step(acceptance=min(1.0, p.get(x, 0.0) / stored), residual=token_residual(p, q)))
    return chain(steps)


WORLDS: list[tuple[World, World]] = [
    (grammar_world("new"), grammar_world("old")),
    (grammar_world("new", temperature=0.7), grammar_world("old", temperature=0.7)),
    (grammar_world("far"), grammar_world("old")),
    (grammar_world("new"), grammar_world("new")),
]


@pytest.mark.parametrize("n", range(len(WORLDS)))
def test_the_stored_rule_is_exact_not_only_up_to_rounding(n: int) -> None:
    target, drafted = WORLDS[n]
    assert total_variation(output_law(stored_rule, target, drafted), answers(target)) <= 1e-12


def test_it_is_exact_on_teachers_made_at_random_where_plain_rounding_is_not() -> None:
    rng = random.Random(2)
    rounding = []
    for _ in range(40):
        target, drafted = random_world(rng), random_world(rng)
        assert total_variation(output_law(stored_rule, target, drafted), answers(target)) <= 1e-12
        rounding.append(total_variation(output_law(rounded_rule, target, drafted), answers(target)))
    assert max(rounding) > 1e-5


def test_what_is_drawn_passes_the_chi_square() -> None:
    target, drafted = WORLDS[0]
    assert chi_square_p(sampled(stored_rule, target, drafted, 20_000, seed=3), answers(target)) > 1e-4


def test_rounding_up_costs_less_than_a_thousandth_of_a_nat_and_token() -> None:
    """Drafts of the very same distribution stop in vain now and then."""
    target = grammar_world("new")
    for tokens in answers(target):
        stops = stored_rule(tokens, places(target, tokens), places(target, tokens))
        nats = -sum(math.log(p[x]) for x, p in zip(tokens, places(target, tokens), strict=True))
        assert 1 - stops[-1].probability <= 2**-10 * nats + 1e-6


@given(st.floats(min_value=-30.0, max_value=0.0))
def test_the_ceiling_is_never_below_what_was_rounded(logprob: float) -> None:
    stored = float(np.float16(logprob))
    assert logprob <= ceiling(stored) <= 0.0
    assert ceiling(stored) == ceiling(logprob)
    assert ceiling(stored) - logprob <= 2**-9 * max(abs(logprob), 2**-14)
    assert agrees(stored, logprob)


def test_a_teacher_that_no_longer_says_what_was_stored_does_not_agree() -> None:
    assert agrees(-1.0, -1.0005)
    assert not agrees(-1.0, -1.01)
    assert not agrees(-1.0, -0.98)
    assert not agrees(-0.0, -0.5)
