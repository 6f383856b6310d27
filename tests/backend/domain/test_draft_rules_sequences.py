"""Drafts kept or not as a whole: how far the output is from the teacher, by enumeration."""

import math
import random

import pytest

from backend.domain.draft_rules_sequences import excess_mass, sequence_rule, typicality
from tests.backend.domain.draft_worlds import Path, World, answers, grammar_world, random_world, total_variation


def output(target: World, drafted: World, m: float) -> tuple[dict[Path, float], float]:
    """(what comes out, the share of drafts that is kept)."""
    p, q = answers(target), answers(drafted)
    kept = {
        x: mass * sequence_rule(math.log(p[x]) if x in p else -math.inf, math.log(mass), m=m) for x, mass in q.items()
    }
    share = math.fsum(kept.values())
    return {x: kept.get(x, 0.0) + (1 - share) * p.get(x, 0.0) for x in p.keys() | q.keys()}, share


@pytest.mark.parametrize("m", [1.0, 2.0, 4.0, 8.0])
def test_the_output_is_within_the_stated_bound(m: float) -> None:
    rng = random.Random(6)
    pairs = [(grammar_world("new"), grammar_world("old"))]
    pairs += [(random_world(rng), random_world(rng)) for _ in range(40)]
    for target, drafted in pairs:
        out, share = output(target, drafted, m)
        bound = excess_mass(answers(target), answers(drafted), m=m) / m
        assert total_variation(out, answers(target)) <= bound + 1e-12
        assert share <= 1 / m + 1e-12


def test_it_is_exact_from_the_largest_ratio_on_and_not_before() -> None:
    target, drafted = grammar_world("new", temperature=0.8), grammar_world("new")
    p, q = answers(target), answers(drafted)
    largest = max(p[x] / q[x] for x in p)
    assert total_variation(output(target, drafted, largest)[0], p) <= 1e-12
    assert total_variation(output(target, drafted, largest / 1.3)[0], p) > 1e-3


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5])
def test_a_teachers_own_answer_is_refused_at_most_as_often_as_stated(alpha: float) -> None:
    """Every pair of fresh answers and a third one as the draft, enumerated."""
    q = answers(grammar_world("old"))
    scored = [(p, round(math.log(p), 12)) for p in q.values()]
    refused = 0.0
    for a, b in ((a, b) for a in scored for b in scored):
        refused += a[0] * b[0] * math.fsum(p for p, s in scored if typicality(s, [a[1], b[1]]) <= alpha)
    assert refused <= alpha + 1e-12


def test_typicality_is_a_test_and_no_sampling_rule() -> None:
    """What it accepts is far from the teacher's distribution, as the certificate says."""
    p, q = answers(grammar_world("new")), answers(grammar_world("old"))
    fresh = [math.log(mass) for mass in sorted(p.values(), reverse=True)]
    kept = {x: mass for x, mass in q.items() if x in p and typicality(math.log(p[x]), fresh) > 0.1}
    share = math.fsum(kept.values())
    out = {x: kept.get(x, 0.0) + (1 - share) * p.get(x, 0.0) for x in p.keys() | q.keys()}
    assert total_variation(out, p) > 0.1


def test_the_least_p_value_is_one_in_n_plus_one() -> None:
    assert typicality(-9.0, [-1.0] * 9) == pytest.approx(0.1)
    assert typicality(0.0, [-1.0] * 9) == 1.0
    assert typicality(-3.0, []) == 1.0
