"""Fairness of the queue."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.engine.fair_queue import QUANTUM, FairQueue


@dataclass(eq=False)
class Item:
    tenant: str
    cost: int
    n: int = 0


def drained(queue: FairQueue[Item]) -> list[Item]:
    out = []
    while (item := queue.pop(lambda _: True)) is not None:
        out.append(item)
    return out


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3000)), max_size=60))
def test_everybody_comes_once_and_in_order_within_a_tenant(asked: list[tuple[str, int]]) -> None:
    queue: FairQueue[Item] = FairQueue()
    for n, (tenant, cost) in enumerate(asked):
        queue.push(Item(tenant, cost, n))
    out = drained(queue)
    assert sorted(item.n for item in out) == list(range(len(asked)))
    for tenant in "abc":
        mine = [item.n for item in out if item.tenant == tenant]
        assert mine == sorted(mine)
    assert len(queue) == 0


def test_a_tenant_with_a_hundred_requests_does_not_hold_up_one_with_two() -> None:
    queue: FairQueue[Item] = FairQueue()
    for n in range(100):
        queue.push(Item("loud", 200, n))
    for n in range(2):
        queue.push(Item("quiet", 200, n))
    order = [item.tenant for item in drained(queue)]
    assert [i for i, tenant in enumerate(order) if tenant == "quiet"][-1] < 10


def test_shares_are_of_tokens_not_of_requests() -> None:
    queue: FairQueue[Item] = FairQueue()
    for n in range(50):
        queue.push(Item("long", 1000, n))
    for n in range(500):
        queue.push(Item("short", 100, n))
    taken = {"long": 0, "short": 0}
    for _ in range(200):
        item = queue.pop(lambda _: True)
        assert item is not None
        taken[item.tenant] += item.cost
    assert abs(taken["long"] - taken["short"]) <= 2 * max(1000, QUANTUM)


def test_who_does_not_fit_is_passed_over_and_keeps_the_turn() -> None:
    queue: FairQueue[Item] = FairQueue()
    queue.push(Item("big", 900))
    queue.push(Item("small", 10))
    first = queue.pop(lambda item: item.cost < 100)
    assert first is not None
    assert first.tenant == "small"
    assert queue.pop(lambda item: item.cost < 100) is None
    assert [item.tenant for item in drained(queue)] == ["big"]
    back = Item("big", 900)
    queue.push_front(back)
    assert queue.drop(back)
    assert not queue.drop(back)
