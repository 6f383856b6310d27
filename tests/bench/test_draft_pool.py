"""The bench of pooled drafts on made-up vectors: its world and its prices are what they say, and its policies differ as
they should."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from backend.domain.drafts.calibration import SourceCount
from backend.domain.drafts.priors import ATOMS, Atom
from backend.domain.drafts.vocabulary import Kinship
from tests.bench.draft_policy_streams import SENSITIVITY, SPECIFICITY
from tests.bench.draft_policy_texts import Family
from tests.bench.draft_pool import OURS, Row, print_goals, print_tables
from tests.bench.draft_pool_before import Before, play_before
from tests.bench.draft_pool_play import Questions, play_pool
from tests.bench.draft_pool_policies import Clairvoyant, Fixed, Ours
from tests.bench.draft_pool_prices import Played, Scenario, Spent
from tests.bench.draft_pool_slices import Pool, Pooled, Shelf
from tests.bench.draft_pool_world import ODDS, FilterRates, K, N, World, draw_worlds, filter_rates
from tests.bench.draft_priors import fit, module_text

SHORT = Scenario(name="5:1, L=12", input=1.0, output=5.0, length=12)
FRUGAL, THRICE = (Questions(scenario=SHORT, are_frugal=each) for each in (True, False))
PASSED = FilterRates(own=0.9, other=0.1)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def family() -> Family:
    rng = np.random.default_rng(3)
    centres = unit(rng.normal(size=(8, 32)))
    return Family(name="a", intents=tuple(unit(centre + 0.13 * rng.normal(size=(60, 32))) for centre in centres))


@pytest.fixture(scope="module")
def world(family: Family) -> World:
    return next(draw_worlds([family], unit(np.random.default_rng(4).normal(size=(50, 32))), 1, 5, PASSED))


def net(played: Played, scenario: Scenario = SHORT) -> float:
    return float(Row(scenario=scenario, played=[played]).nets()[0])


class Nothing:
    uses_filter = False

    def plan(self, world: World, shelf: Shelf) -> Pooled:
        return Pooled()

    def learn(self, counts: Mapping[int, Sequence[SourceCount]], spent: Mapping[int, Spent]) -> None:
        pass


def test_nothing_pooled_costs_what_all_fresh_costs(world: World) -> None:
    played = play_pool(world, Nothing(), THRICE)
    assert net(played) == pytest.approx(0)
    assert played.n_picks == K * len(world)
    assert played.n_asked == played.n_bad_picks == 0


def test_ours_is_far_above_the_product_before_near_the_clairvoyant_and_asks_less(world: World) -> None:
    """The clairvoyant is one slice at a time: what it does not write now is no draft later."""
    ours = play_pool(world, Ours(SHORT, 1), FRUGAL)
    before = play_before(world, Before(SHORT, 1))
    assert net(ours) > net(before) + 0.1
    assert net(ours) == pytest.approx(net(play_pool(world, Clairvoyant(SHORT, PASSED), FRUGAL)), abs=0.06)
    assert ours.n_asked < 10 * len(world)


def test_frugal_questions_are_fewer_and_displace_picks_for_it(world: World) -> None:
    frugal, thrice = (play_pool(world, Fixed(2.0, 0.8, seed=2), each) for each in (FRUGAL, THRICE))
    assert frugal.n_turns < thrice.n_turns
    assert net(frugal) > net(thrice)
    assert frugal.n_displaced >= thrice.n_displaced


def test_a_compile_sees_nothing_of_its_own_slices_and_the_first_has_no_drafts(world: World) -> None:
    class Looking(Fixed):
        def plan(self, world: World, shelf: Shelf) -> Pooled:
            assert all(source < shelf.slice - shelf.slice % 8 for source in shelf.drafts)
            assert all(0 < len(places) <= N for places in shelf.drafts.values())
            seen.append(shelf.slice)
            return super().plan(world, shelf)

    seen: list[int] = []
    play_pool(world, Looking(2.0, 0.8), THRICE)
    assert min(seen) == 8


def test_the_draws_are_what_they_are_said_to_be(world: World) -> None:
    right = world.is_right
    assert world.says_yes[0][right].mean() == pytest.approx(SENSITIVITY, abs=0.01)
    assert world.says_yes[1][~right].mean() == pytest.approx(1 - SPECIFICITY, abs=0.01)
    assert world.clocks[right].mean() / world.clocks[~right].mean() == pytest.approx(ODDS, rel=0.05)
    assert {kinship for row in world.kinships for kinship in row} == set(Kinship)
    assert not (world.is_seen & world.same_label[:, :, None]).any()


def test_refused_picks_leave_the_pool_and_one_that_is_short_is_filled_up() -> None:
    pool = Pool(slice=0, n_counted=20, unverified={(1, place): 0.8 for place in range(24)})
    pool.fill(N - pool.n_counted)
    for place in range(6):
        pool.take((1, place), is_accepted=False)
    pool.top_up()
    pool.drop_unlikely()
    assert pool.unverified == {}
    assert pool.n_fresh > N - 4
    assert pool.spent.n_calls >= 3


def test_the_prices_are_the_audits() -> None:
    assert SHORT.fresh == 86.0
    assert SHORT.verify_before == 32.0
    assert SHORT.verify == pytest.approx(21.67, abs=0.01)
    spent = Spent(text_in=550, items=10, out=8)
    assert spent.judged(SHORT) == 550 + 120 + 40
    assert spent.judged(replace(SHORT, judge=0.1)) == pytest.approx(71)


def test_the_filter_is_measured_with_the_products_own(family: Family) -> None:
    rates = filter_rates([family], seed=1, n_draws=1)
    assert rates.other < 0.1 < 0.6 < rates.own


def test_the_tables_hold_every_policy_and_the_goals_say_what_is_missed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = play_pool(world, Nothing(), THRICE)
    row = Row(scenario=SHORT, played=[nothing, nothing])
    better = Row(scenario=SHORT, played=[play_pool(world, Fixed(2.0, 0.8), FRUGAL)] * 2)
    rows = {SHORT.name: {OURS: row, "clairvoyant": better}}
    print_tables(rows)
    assert not print_goals(rows)
    printed = capsys.readouterr().out
    assert "| **ours** | 0.0 ± 0.0 | 0.0 | 0 (+0.0) | 0.0 |" in printed
    assert printed.count("MISSED") == 3
    assert printed.count("| met |") == 2


def test_a_prior_is_fitted_to_streams_and_written_as_the_module_reads_it() -> None:
    good = [SourceCount(distance=0.2, n_shown=4, n_accepted=4)] * 60
    poor = [SourceCount(distance=0.2, n_shown=4, n_accepted=0)] * 60
    atoms = fit([good, good, good, poor, []])
    assert sum(a.weight for a in atoms if a.threshold > 0.2 and a.ceiling > 0.9) == pytest.approx(0.75, abs=0.02)
    table = {kinship: [Atom(0.8, 0.24, 0.75, 0.5)] for kinship in Kinship}
    text = module_text(table, command="fit", n_streams=3, day="2026-11-27")
    scope: dict[str, object] = {}
    exec(text, scope)
    assert set(scope["ATOMS"]) == set(ATOMS)  # type: ignore[call-overload]
    assert "Fitted 2026-11-27 by\n\n    fit\n\nto 3 streams" in text
