"""Who is let to the engine, and when. No engine here: a turn is a turn."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.models.protocol import Overloaded
from gpu_runners.serving.fair_scheduler import FairScheduler


async def served(scheduler: FairScheduler, tenant: str, order: list[str], *, tokens: int = 10, limit: int = 99) -> None:
    async with scheduler.turn(tenant, limit=limit):
        order.append(tenant)
        scheduler.charge(tenant, tokens)
        await asyncio.sleep(0)


def test_a_tenant_with_many_requests_does_not_keep_another_waiting() -> None:
    async def scene() -> list[str]:
        scheduler, order = FairScheduler(max_running=1), []
        greedy = [asyncio.create_task(served(scheduler, "greedy", order)) for _ in range(30)]
        await asyncio.sleep(0)
        modest = [asyncio.create_task(served(scheduler, "modest", order)) for _ in range(3)]
        await asyncio.gather(*greedy, *modest)
        return order

    order = asyncio.run(scene())
    assert Counter(order) == {"greedy": 30, "modest": 3}
    assert max(i for i, tenant in enumerate(order) if tenant == "modest") <= 7


def test_a_tenant_with_a_hundred_requests_does_not_hold_up_one_with_two() -> None:
    async def scene() -> list[str]:
        scheduler, order = FairScheduler(max_running=1, max_tenant_waiting=100), []
        loud = [asyncio.create_task(served(scheduler, "loud", order, tokens=200)) for _ in range(100)]
        quiet = [asyncio.create_task(served(scheduler, "quiet", order, tokens=200)) for _ in range(2)]
        await asyncio.gather(*loud, *quiet)
        return order

    order = asyncio.run(scene())
    assert [i for i, tenant in enumerate(order) if tenant == "quiet"][-1] < 10


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3000)), max_size=60))
def test_everybody_comes_once_and_in_order_within_a_tenant(asked: list[tuple[str, int]]) -> None:
    async def scene() -> list[tuple[str, int]]:
        scheduler, order = FairScheduler(max_running=1), []

        async def one(tenant: str, n: int, tokens: int) -> None:
            async with scheduler.turn(tenant, limit=99):
                order.append((tenant, n))
                scheduler.charge(tenant, tokens)

        await asyncio.gather(*(one(tenant, n, tokens) for n, (tenant, tokens) in enumerate(asked)))
        assert (scheduler.n_running, scheduler.n_waiting) == (0, 0)
        return order

    order = asyncio.run(scene())
    assert sorted(n for _, n in order) == list(range(len(asked)))
    for tenant in "abc":
        mine = [n for name, n in order if name == tenant]
        assert mine == sorted(mine)


def test_shares_are_of_tokens_not_of_requests() -> None:
    sizes = {"long": 1000, "short": 100}

    async def scene() -> list[str]:
        scheduler, order = FairScheduler(max_running=1, max_waiting=1000, max_tenant_waiting=600), []
        long = [asyncio.create_task(served(scheduler, "long", order, tokens=sizes["long"])) for _ in range(50)]
        short = [asyncio.create_task(served(scheduler, "short", order, tokens=sizes["short"])) for _ in range(500)]
        await asyncio.gather(*long, *short)
        return order

    taken = Counter()
    for tenant in asyncio.run(scene())[:200]:
        taken[tenant] += sizes[tenant]
    assert abs(taken["long"] - taken["short"]) <= 2 * 1000


def test_who_is_served_long_answers_gets_fewer_of_them() -> None:
    async def scene() -> list[str]:
        scheduler, order = FairScheduler(max_running=1), []
        both = [
            asyncio.create_task(served(scheduler, tenant, order, tokens=tokens))
            for _ in range(20)
            for tenant, tokens in (("long", 100), ("short", 10))
        ]
        await asyncio.gather(*both)
        return order

    first = Counter(asyncio.run(scene())[:20])
    assert first["short"] >= 3 * first["long"]


def test_idling_saves_nothing_up() -> None:
    async def scene() -> list[str]:
        scheduler, order = FairScheduler(max_running=1), []
        for _ in range(50):
            await served(scheduler, "steady", order)
        order.clear()
        steady = [asyncio.create_task(served(scheduler, "steady", order)) for _ in range(10)]
        await asyncio.sleep(0)
        back = [asyncio.create_task(served(scheduler, "back", order)) for _ in range(10)]
        await asyncio.gather(*steady, *back)
        return order

    assert Counter(asyncio.run(scene())[:10])["steady"] >= 4


def test_a_tenants_limit_holds_and_does_not_keep_others_back() -> None:
    async def scene() -> tuple[int, int]:
        scheduler, at_once, most, gate = FairScheduler(max_running=8), 0, 0, asyncio.Event()

        async def one(tenant: str, limit: int) -> None:
            nonlocal at_once, most
            async with scheduler.turn(tenant, limit=limit):
                if tenant == "narrow":
                    at_once += 1
                    most = max(most, at_once)
                await gate.wait()
                at_once -= tenant == "narrow"

        tasks = [asyncio.create_task(one("narrow", 2)) for _ in range(6)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(one("wide", 8)) for _ in range(6)]
        await asyncio.sleep(0.01)
        running = scheduler.n_running
        gate.set()
        await asyncio.gather(*tasks)
        assert (scheduler.n_running, scheduler.n_waiting) == (0, 0)
        return most, running

    assert asyncio.run(scene()) == (2, 8)


def test_a_thousand_at_once_are_served_or_told_when_to_come_back() -> None:
    async def scene() -> Counter[str]:
        scheduler = FairScheduler(max_running=4, max_waiting=256, max_tenant_waiting=64)

        async def one(i: int) -> str:
            try:
                async with scheduler.turn(f"tenant-{i % 10}", limit=4):
                    await asyncio.sleep(0)
                    return "served"
            except Overloaded as error:
                return "turned away" if 1 <= error.retry_after_s <= 60 else "told nothing useful"

        said = Counter(await asyncio.gather(*(one(i) for i in range(1000))))
        assert said["turned away"] == scheduler.n_turned_away
        return said

    said = asyncio.run(scene())
    assert said["served"] == 260
    assert said["turned away"] == 740


def test_who_waits_too_long_is_told_so_and_leaves_no_place_behind() -> None:
    async def scene() -> None:
        scheduler = FairScheduler(max_running=1, max_wait_s=0.02)
        async with scheduler.turn("a", limit=1):
            with pytest.raises(Overloaded):
                await served(scheduler, "b", [])
        assert (scheduler.n_running, scheduler.n_waiting) == (0, 0)
        await served(scheduler, "b", [])

    asyncio.run(scene())


def test_who_goes_away_while_waiting_leaves_no_place_behind() -> None:
    async def scene() -> None:
        scheduler = FairScheduler(max_running=1)
        async with scheduler.turn("a", limit=1):
            gone = asyncio.create_task(served(scheduler, "b", []))
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        assert (scheduler.n_running, scheduler.n_waiting) == (0, 0)

    asyncio.run(scene())


def test_who_goes_away_in_the_moment_it_is_let_in_gives_the_place_to_the_next() -> None:
    async def scene() -> list[str]:
        scheduler, order = FairScheduler(max_running=1), []
        first = scheduler.turn("a", limit=1)
        await first.__aenter__()
        gone = asyncio.create_task(served(scheduler, "b", order))
        then = asyncio.create_task(served(scheduler, "c", order))
        await asyncio.sleep(0)
        await first.__aexit__(None, None, None)
        gone.cancel()
        await asyncio.gather(gone, then, return_exceptions=True)
        assert (scheduler.n_running, scheduler.n_waiting) == (0, 0)
        return order

    assert asyncio.run(scene()) == ["c"]
