"""Who comes next in the engine. Shares of tenants: tests/gpu_runners/serving/test_fair_scheduler.py."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.engine.admission_queue import AdmissionQueue


@dataclass(eq=False)
class Item:
    tenant: str
    cost: int
    n: int = 0


def drained(queue: AdmissionQueue) -> list[Item]:
    out = []
    while (item := queue.pop(lambda _: True)) is not None:
        out.append(item)
    return out


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3000)), max_size=60))
def test_everybody_comes_once_and_in_order_within_a_tenant(asked: list[tuple[str, int]]) -> None:
    queue = AdmissionQueue()
    for n, (tenant, cost) in enumerate(asked):
        queue.push(Item(tenant, cost, n))
    out = drained(queue)
    assert sorted(item.n for item in out) == list(range(len(asked)))
    for tenant in "abc":
        mine = [item.n for item in out if item.tenant == tenant]
        assert mine == sorted(mine)
    assert len(queue) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3000)), max_size=60), st.integers(1, 3000))
def test_what_does_not_fit_is_overtaken_by_other_tenants_alone(asked: list[tuple[str, int]], room: int) -> None:
    queue = AdmissionQueue()
    for n, (tenant, cost) in enumerate(asked):
        queue.push(Item(tenant, cost, n))
    taken = []
    while (item := queue.pop(lambda item: item.cost <= room)) is not None:
        taken.append(item)
    for tenant in "abc":
        costs = [cost for name, cost in asked if name == tenant]
        fitting = next((i for i, cost in enumerate(costs) if cost > room), len(costs))
        assert [item.cost for item in taken if item.tenant == tenant] == costs[:fitting]


def test_who_does_not_fit_is_passed_over_and_keeps_the_turn() -> None:
    queue = AdmissionQueue()
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
