"""Rules that look right and are not: each is far from the teacher by enumeration, and the chi-square rejects what it
draws. They exist only here. And the bound that covers them: what comes out is never further from the teacher than the
drafts are from what the rule was told of them."""

import math
import random
from collections.abc import Mapping, Sequence

import pytest
from scipy.stats import multinomial

from backend.domain.drafts.acceptance_rules import (
    Distribution,
    Step,
    StopDistribution,
    block_rule,
    chain,
    normalise,
    token_residual,
)
from backend.domain.drafts.token_distributions import process_logprobs
from tests.backend.domain.drafts.draft_worlds import (
    Path,
    Rule,
    World,
    answers,
    chi_square_p,
    grammar_world,
    output_law,
    point_mass_rule,
    random_world,
    sampled,
    token_rule,
    total_variation,
)

N_ALL, N_PICKED = 12, 4
N_DRAWS = 20_000
TARGET, OLD = grammar_world("new"), grammar_world("old")


def chosen_token_residual(
    tokens: Path, target: Sequence[Distribution], drafted: Sequence[Distribution]
) -> StopDistribution:
    """T4: only q(x_i) is known, so the next token is drawn from p without x_i."""
    steps = [
        Step(
            acceptance=min(1.0, p.get(x, 0.0) / q[x]),
            residual=normalise({y: mass for y, mass in p.items() if y != x}),
        )
        for x, p, q in zip(tokens, target, drafted, strict=True)
    ]
    return chain(steps)


def truncated_residual(
    tokens: Path, target: Sequence[Distribution], drafted: Sequence[Distribution]
) -> StopDistribution:
    """T6: all tokens are sampled, but only the likeliest of q is known beside x_i; the rest counts as never drawn."""
    steps = []
    for x, p, q in zip(tokens, target, drafted, strict=True):
        known = {y: mass for y, mass in q.items() if y == x or mass == max(q.values())}
        steps.append(Step(acceptance=min(1.0, p.get(x, 0.0) / q[x]), residual=token_residual(p, known)))
    return chain(steps)


def lenient(tokens: Path, target: Sequence[Distribution], drafted: Sequence[Distribution]) -> StopDistribution:
    """T5: twice as easily kept as the ratio says."""
    steps = [
        Step(acceptance=min(1.0, 2 * p.get(x, 0.0) / q[x]), residual=token_residual(p, q))
        for x, p, q in zip(tokens, target, drafted, strict=True)
    ]
    return chain(steps)


def cooled(world: World, temperature: float) -> dict[Path, Distribution]:
    """A world sampled at another temperature, as an engine does it: token by token."""
    out: dict[Path, Distribution] = {}
    for path, place in world.items():
        told = process_logprobs([(x, math.log(p)) for x, p in place.items()], temperature=temperature, top_k=None)
        out[path] = {x: math.exp(p) for x, p in told}
    return out


def rejected_only(world: World, score: Mapping[Path, float]) -> dict[Path, float]:
    """T9: the distribution of a random one of the N - K drafts that a selection by score did not pick."""
    q = answers(world)
    kept: dict[Path, float] = {}
    for tokens, p in q.items():
        better = math.fsum(other for t, other in q.items() if score[t] > score[tokens])
        ranks = multinomial(N_ALL - 1, [better, p, max(0.0, 1 - better - p)])
        rejected = 0.0
        for n_better in range(N_ALL):
            for n_equal in range(N_ALL - n_better):
                mass = ranks.pmf([n_better, n_equal, N_ALL - 1 - n_better - n_equal])
                # equals are ordered at random: the rank is uniform among them
                beyond = sum(n_better + at >= N_PICKED for at in range(n_equal + 1)) / (n_equal + 1)
                rejected += mass * beyond
        kept[tokens] = N_ALL * p * rejected / (N_ALL - N_PICKED)
    return kept


def best_of(world: World, score: Mapping[Path, float]) -> dict[Path, float]:
    """The distribution of the best of N by score."""
    q = answers(world)
    ranked = sorted(q, key=lambda tokens: -score[tokens])
    out: dict[Path, float] = {}
    above = 0.0
    for tokens in ranked:
        none_above = 1 - min(1.0, above)
        out[tokens] = none_above**N_ALL - max(0.0, none_above - q[tokens]) ** N_ALL
        above += q[tokens]
    return out


def scores(world: World) -> dict[Path, float]:
    """A verifier that likes long answers; no two score alike."""
    return {tokens: len(tokens) + i / 1000 for i, tokens in enumerate(sorted(answers(world)))}


Q = answers(OLD)
REJECTED = rejected_only(OLD, scores(OLD))
COOL = cooled(OLD, 0.7)
# name: the rule, p, the q it is told, what the drafts are really drawn from, the least distance that it must show
TRAPS: dict[str, tuple[Rule, World, World, dict[Path, float], float]] = {
    "chosen-token residual (T4)": (chosen_token_residual, TARGET, OLD, Q, 0.03),
    "top-k truncation (T6)": (truncated_residual, TARGET, OLD, Q, 0.02),
    "lenience (T5)": (lenient, TARGET, OLD, Q, 0.1),
    "raw instead of processed log-probs (T8)": (token_rule, TARGET, OLD, answers(COOL), 0.05),
    "raw log-probs, block rule (T8)": (block_rule, TARGET, OLD, answers(COOL), 0.05),
    "wrong temperature": (token_rule, TARGET, OLD, answers(grammar_world("old", temperature=0.5)), 0.05),
    "rejected drafts only (T9)": (token_rule, TARGET, OLD, REJECTED, 0.05),
    "rejected drafts only, block rule (T9)": (block_rule, TARGET, OLD, REJECTED, 0.05),
    "the best-scored draft (T9)": (token_rule, TARGET, OLD, best_of(OLD, scores(OLD)), 0.1),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_far_from_the_teacher_and_the_chi_square_finds_it(trap: str) -> None:
    rule, target, drafted, drafts, least = TRAPS[trap]
    assert math.fsum(drafts.values()) == pytest.approx(1.0)
    assert total_variation(output_law(rule, target, drafted, drafts=drafts), answers(target)) > least
    counts = sampled(rule, target, drafted, N_DRAWS, seed=3, drafts=drafts)
    assert chi_square_p(counts, answers(target)) < 1e-9


@pytest.mark.parametrize("rule", [token_rule, block_rule])
def test_told_the_truth_the_same_drafts_give_the_teachers_distribution(rule: Rule) -> None:
    """The other half of T8: the processed log-probs of the same drafts."""
    assert total_variation(output_law(rule, TARGET, COOL), answers(TARGET)) <= 1e-12


def test_rejected_drafts_are_no_further_from_a_sample_than_the_share_that_was_picked() -> None:
    assert 0.1 < total_variation(REJECTED, Q) <= N_PICKED / N_ALL


def test_a_random_one_of_all_drafts_is_a_sample_again() -> None:
    """T11: what was picked is put back."""
    n_left = N_ALL - N_PICKED
    picked = {x: (N_ALL * q - n_left * REJECTED[x]) / N_PICKED for x, q in Q.items()}
    assert min(picked.values()) >= -1e-12
    all_n = {x: (N_PICKED * picked[x] + n_left * REJECTED[x]) / N_ALL for x in Q}
    for rule in (token_rule, block_rule):
        assert total_variation(output_law(rule, TARGET, OLD, drafts=all_n), answers(TARGET)) <= 1e-12


@pytest.mark.parametrize("chosen", [REJECTED, best_of(OLD, scores(OLD)), answers(grammar_world("far"))])
def test_the_point_mass_is_exact_however_the_drafts_were_chosen(chosen: dict[Path, float]) -> None:
    """T10."""

    def rule(tokens: Path, target: Sequence[Distribution], _: Sequence[Distribution]) -> StopDistribution:
        return point_mass_rule(tokens, target)

    assert total_variation(output_law(rule, TARGET, OLD, drafts=chosen), answers(TARGET)) <= 1e-12
    assert chi_square_p(sampled(rule, TARGET, OLD, N_DRAWS, seed=3, drafts=chosen), answers(TARGET)) > 1e-4


@pytest.mark.parametrize("rule", [token_rule, block_rule])
def test_the_output_is_no_further_from_the_teacher_than_the_drafts_from_what_is_said_of_them(rule: Rule) -> None:
    rng = random.Random(8)
    tight = 0.0
    for _ in range(60):
        target, told = random_world(rng), random_world(rng, depth=2)
        drafts = reweighted(answers(told), rng)
        off = total_variation(drafts, answers(told))
        out = total_variation(output_law(rule, target, told, drafts=drafts), answers(target))
        assert out <= off + 1e-12
        tight = max(tight, out / off)
    assert tight > 0.5  # the bound says something


def reweighted(drafts: Mapping[Path, float], rng: random.Random) -> dict[Path, float]:
    weights = {x: p * rng.random() ** 2 for x, p in drafts.items()}
    return {x: w / sum(weights.values()) for x, w in weights.items()}


def test_the_rank_arithmetic_of_the_rejected_agrees_with_drawing_them() -> None:
    rng = random.Random(4)
    score = scores(OLD)
    seen: dict[Path, int] = {}
    for _ in range(4000):
        drawn = rng.choices(list(Q), list(Q.values()), k=N_ALL)
        left = sorted(drawn, key=lambda tokens: -score[tokens])[N_PICKED:]
        one = rng.choice(left)
        seen[one] = seen.get(one, 0) + 1
    assert chi_square_p(seen, REJECTED) > 1e-4
