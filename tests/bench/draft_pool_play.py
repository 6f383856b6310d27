"""Plays a policy through a stream, with the drafts verified after selection.

What a policy pools competes unverified with the fresh candidates, selection takes the eight least clocks, and the
teacher is asked about the drafts among them, all slices of the compile in one question of about a hundred drafts a
request, one in 24 a control of another slice. A chunk of 24 whose control is accepted is asked once more. What is
refused leaves the pool, and drafts of sources that it makes unlikely too; a pool that is short by more than a tenth is
filled up; then selection picks again, at most three questions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.domain.drafts.question_policy import is_worth_asking_again
from tests.bench.draft_pool_prices import CONTROL_EVERY, HEAD, ITEM, RUN, SLICE_LINES, Played, Scenario, Spent
from tests.bench.draft_pool_slices import Draft, Pool, Pooled, PoolPolicy, Shelf, Stock
from tests.bench.draft_pool_world import MAX_TURNS, N_COMPILES, N_SLICES, K, N, World

A_REQUEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Three questions about the picks at most; `are_frugal`: the first goes as far as `question_policy` says, and
    another one has to pay."""

    scenario: Scenario
    are_frugal: bool


def play_pool(world: World, policy: PoolPolicy, questions: Questions) -> Played:
    played, stock = Played(), Stock()
    for number in range(N_COMPILES):
        slices = range(N_SLICES * number, N_SLICES * (number + 1))
        shelves = {now: stock.shelf(world, now, filtered=policy.uses_filter) for now in slices}
        n_with = sum(bool(shelf) for shelf in shelves.values())
        pools = []
        for now, drafts in shelves.items():
            plan = policy.plan(world, Shelf(slice=now, drafts=drafts, n_with_drafts=n_with)) if drafts else Pooled()
            pool = Pool(slice=now, n_counted=plan.n_counted, unverified={(s, p): a for s, p, a in plan.drafts})
            pool.fill(N - plan.n_counted)
            played.n_pooled += len(plan.drafts)
            pools.append(pool)
        for turn in range(MAX_TURNS):
            asked = {pool.slice: pool.to_ask(world, reserves=questions.are_frugal and not turn) for pool in pools}
            if not any(asked.values()) or (turn and questions.are_frugal and not _pays(pools, questions.scenario)):
                break
            played.n_turns += 1
            _ask(world, number, turn, pools, asked, played)  # type: ignore[arg-type]
            for pool in pools:
                pool.top_up()
                pool.drop_unlikely()
        spent = Spent()
        for pool in pools:
            _finish(world, pool, stock, played)
            spent += pool.spent
        played.spent.append(spent)
        policy.learn({pool.slice: pool.counts(world) for pool in pools}, {pool.slice: pool.spent for pool in pools})
    return played


def _pays(pools: Sequence[Pool], scenario: Scenario) -> bool:
    """Say whether another question costs less than writing the picks that verified candidates do not suffice for."""
    return is_worth_asking_again(
        sum(max(0, K - pool.n_fresh - len(pool.accepted)) for pool in pools),
        fresh_microusd=scenario.fresh,
        verify_microusd=scenario.verify,
        overhead_microusd=scenario.overhead(N_SLICES, 1),
    )


def _finish(world: World, pool: Pool, stock: Stock, played: Played) -> None:
    """No pick is unverified: those that nobody was asked about leave where one would be."""
    played.n_displaced += _displaced(world, pool)
    picks = pool.order(world)[:K]
    if any(pick in pool.unverified for pick in picks):
        pool.unverified = {}
    pool.fill(K - len(pool.accepted))
    picks = pool.order(world)[:K]
    for draft in pool.accepted:
        stock.enter(draft)
    count_picks(world, pool.slice, picks, pool.accepted, played)
    stock.live[pool.slice] = [place for place in range(pool.n_fresh) if place not in picks]


def _displaced(world: World, pool: Pool) -> int:
    """The number of final picks that would be others if every pooled draft had been asked about."""
    willing = {(s, p): a for (s, p), a in pool.unverified.items() if world.says_yes[0, pool.slice, s, p]}
    ideal = [each for each in pool.order(world) if each in willing or each not in pool.unverified][:K]
    return sum(each in willing for each in ideal)


def count_picks(
    world: World, now: int, picks: Sequence[Draft | int], accepted: Sequence[Draft], played: Played
) -> None:
    drafts = [pick for pick in picks if not isinstance(pick, int)]
    bad = [(s, p) for s, p in drafts if not world.is_right[now, s, p]]
    played.n_accepted += len(accepted)
    played.n_bad += sum(not world.is_right[now, s, p] for s, p in accepted)
    played.n_picks += len(picks)
    played.n_bad_picks += len(bad)
    played.n_bad_after += sum(not world.is_seen[now, s, p] for s, p in bad)


def _ask(
    world: World, number: int, turn: int, pools: Sequence[Pool], asked: Mapping[int, list[Draft]], played: Played
) -> None:
    """One question about the picked drafts of all slices; its cost is shared by the drafts."""
    items = [(pool, draft) for pool in pools for draft in asked[pool.slice]]
    played.n_asked += len(items)
    spent = Spent()
    for first in range(0, len(items), A_REQUEST):
        request = items[first : first + A_REQUEST]
        flags: list[bool] = [bool(world.positive_accepted[number, turn, first // A_REQUEST])]
        for start in range(0, len(request), CONTROL_EVERY):
            chunk = request[start : start + CONTROL_EVERY]
            place = first // CONTROL_EVERY + start // CONTROL_EVERY
            verdicts = [bool(world.says_yes[0, pool.slice, s, p]) for pool, (s, p) in chunk]
            failed = world.control_accepted[number, turn, place]
            flags += _with_control(verdicts, bool(failed[0]))
            if failed[0]:
                verdicts = [bool(world.says_yes[1, pool.slice, s, p]) for pool, (s, p) in chunk]
                spent += _request(len(chunk) + 2, [True, *_with_control(verdicts, bool(failed[1]))])
            for (pool, draft), is_accepted in zip(chunk, verdicts, strict=True):
                pool.take(draft, None if failed.all() else is_accepted)
        spent += _request(len(flags), flags)
    for pool in pools:
        share = len(asked[pool.slice]) / len(items)
        pool.spent += Spent(text_in=spent.text_in * share, items=spent.items * share, out=spent.out * share)


def _with_control(verdicts: Sequence[bool], is_accepted: bool) -> list[bool]:
    middle = len(verdicts) // 2
    return [*verdicts[:middle], is_accepted, *verdicts[middle:]]


def _request(n_items: int, flags: Sequence[bool]) -> Spent:
    """Accepted numbers are answered as runs."""
    n_runs = sum(now and not before for before, now in zip((False, *flags), flags, strict=False))
    text_in = HEAD + SLICE_LINES * N_SLICES + ITEM * n_items
    return Spent(text_in=text_in, items=n_items, out=RUN * (1 + n_runs))
