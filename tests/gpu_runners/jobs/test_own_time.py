"""The own time of answers: what is counted, and what is not. That a load changes no K-score is
`tests/bench/test_gate_stability.py`, which takes minutes."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.domain.evaluation.own_time import Clock
from gpu_runners.artifacts.rules_first import RulesFirst
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.jobs import own_time
from gpu_runners.jobs.own_time import Reference, one_thread, own_times, with_rules
from tests.gpu_runners.small_base import make_base
from tests.gpu_runners.small_packs import label_rules

WORK = Reference()


def works(times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            WORK()

    return work


def test_waiting_is_nobodys_own_time_and_twice_the_work_is_twice_the_time() -> None:
    def waits() -> None:
        time.sleep(0.05)

    def is_so() -> bool:
        times = own_times([waits, works(5), works(10)], device="cpu")
        assert times.clock is Clock.CPU
        waited, five, ten = times.answers_ns
        return waited < times.reference_ns and 1.4 < ten / five < 2.8 and 3 < five / times.reference_ns < 8

    # a processor's own time is longer too while others use the other half of its core: so it is in one of five tries
    assert any(is_so() for _ in range(5))


def test_of_several_turns_the_least_counts() -> None:
    turns: list[int] = []

    def slow_at_first() -> None:
        turns.append(1)
        works(9 if len(turns) == 1 else 1)()

    times = own_times([slow_at_first], device="cpu")
    assert len(turns) == own_time.ROUNDS
    assert times.answers_ns[0] < 5 * times.reference_ns


def test_what_takes_too_long_is_measured_on_fewer_answers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_time, "BUDGET_NS", 1)
    asked: list[int] = []
    times = own_times([lambda i=i: asked.append(i) or works(1)() for i in range(9)], device="cpu")  # type: ignore[misc]
    assert asked == list(range(own_time.MIN_ANSWERS))
    assert len(times.answers_ns) == own_time.MIN_ANSWERS


def test_what_a_rule_answers_takes_the_look_up_alone() -> None:
    rules = RulesFirst.from_members({"rules.json": label_rules(("tea", "tea"))}, labels=["tea", "coffee"])
    assert rules is not None
    ruled = with_rules(rules, ["tea please", "a cup of coffee"], [10**10, 10**10])
    assert ruled[0] < 10**9 < ruled[1]
    assert ruled[1] >= 10**10


@pytest.mark.nightly
def test_an_engine_computes_with_one_thread_while_it_is_asked_to(tmp_path: Path) -> None:
    engine = TorchEngine(make_base(tmp_path / "small"))
    try:
        before = engine._set_threads(3)
        with one_thread(), engine.one_thread():
            assert engine._set_threads(1) == 1
        assert engine._set_threads(before) == 3
    finally:
        engine.stop()
