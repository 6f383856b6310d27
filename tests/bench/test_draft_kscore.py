"""The arithmetic of the paired experiment's tables. The experiment itself is `make bench-draft-kscore`."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from tests.bench.draft_kscore_pairs import COLD, JUDGE, Measured, differences_of, equal_speed, paired
from tests.bench.draft_kscore_table import report

DIFFERENCES = st.lists(st.integers(-50, 50).map(lambda n: n / 200), min_size=2, max_size=40)
ACCOUNT = {
    "avoided_microusd": 900,
    "verification_microusd": 100,
    "embedding_microusd": 10,
    "audit_microusd": 20,
    "exploration_microusd": 0,
    "net_microusd": 770,
}


def compile_of(arm: str, seed: int, *, correct: int = 150, p50_us: int = 20_000) -> Measured:
    is_warm = arm != COLD
    return Measured(
        arm=arm,
        seed=seed,
        k_score_ppm=800_000,
        size_bytes=1_350_000,
        p50_us=p50_us,
        cost_nanousd=p50_us * 15 // 100,
        n_heldout=200,
        n_answered=200,
        n_correct=correct,
        n_pool=120,
        n_trained=40,
        from_drafts={"judged": 30} if is_warm else {},
        trained_from_drafts={"judged": 10} if is_warm else {},
        n_offered=40 if is_warm else 0,
        n_accepted=32 if is_warm else 0,
        synthesis_microusd=1_000 if is_warm else 2_000,
        labeling_microusd=300,
        saving=ACCOUNT if is_warm else dict.fromkeys(ACCOUNT, 0),
        slices={"offered": 5} if is_warm else {"no_drafts": 5},
        warnings={},
    )


@given(DIFFERENCES)
def test_the_interval_is_that_of_a_paired_t_test(differences: list[float]) -> None:
    found = paired(differences)
    assert found.low <= found.mean <= found.high
    if found.sd > 1e-9:
        theirs = ttest_1samp(differences, 0.0).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))
        assert found.is_below_noise == (theirs.high < 0)


@given(DIFFERENCES)
def test_turning_the_differences_round_turns_everything_round(differences: list[float]) -> None:
    one, other = paired(differences), paired([-d for d in differences])
    assert (one.mean, one.low, one.wins) == pytest.approx((-other.mean, -other.high, other.losses))
    assert (one.sign_p, one.detectable) == pytest.approx((other.sign_p, other.detectable))


def test_known_figures() -> None:
    found = paired([0.01, 0.02, -0.01, 0.0])
    assert (found.wins, found.losses, found.n) == (2, 1, 4)
    assert found.sign_p == 1.0  # 2 of 3
    assert found.mean == pytest.approx(0.005)
    assert found.sd == pytest.approx(0.0129099, rel=1e-5)
    assert found.high == pytest.approx(0.005 + 3.182446 * 0.0129099 / 2, rel=1e-4)
    assert found.detectable == pytest.approx((3.182446 + 0.978472) * 0.0129099 / 2, rel=1e-4)


def test_a_loss_in_every_pair_is_below_noise_and_one_loss_is_not() -> None:
    assert paired([-0.02, -0.021, -0.019, -0.02]).is_below_noise
    assert not paired([-0.08, 0.0, 0.0, 0.0]).is_below_noise


def test_pairs_are_of_one_seed_and_a_seed_without_its_cold_compile_does_not_count() -> None:
    rows = [
        compile_of(COLD, 1, correct=150),
        compile_of(JUDGE, 2, correct=170),
        compile_of(COLD, 2, correct=160),
        compile_of(JUDGE, 1, correct=140),
        compile_of(JUDGE, 3),
    ]
    assert differences_of(rows, JUDGE, lambda row: row.n_correct) == [-10, 10]


def test_at_equal_speed_a_slow_minute_of_the_machine_changes_no_k_score() -> None:
    rows = [compile_of(COLD, 1), compile_of(JUDGE, 1, p50_us=90_000), compile_of(COLD, 2), compile_of(JUDGE, 2)]
    assert differences_of(rows, JUDGE, equal_speed(rows)) == [0.0, 0.0]
    better = [replace(rows[1], n_correct=160), *rows]
    assert equal_speed(rows)(better[0]) - equal_speed(rows)(rows[0]) == pytest.approx(0.4 * 10 / 200, abs=2e-6)


def test_the_tables_add_up_what_the_compiles_measured() -> None:
    rows = [compile_of(arm, seed) for arm in (COLD, JUDGE) for seed in (1, 2)]
    lines = report(rows).splitlines()
    assert "| judge | 2 | 80 | 64 (80.0%) | 25.0% | 25.0% | judged 60 |" in lines
    assert "| judge | 2,000 | 1,000 | 300 | 300 | 900 | 100 | 30 | 770 | 0 of 2 |" in lines
