"""When a child counts as standing still."""

import os
import signal
import subprocess
import sys
import time

import pytest

from backend.domain.jobs.runner_jobs import RunnerJobKind
from gpu_runners.agent.stalling import LEAST_STEP_S, SILENT_S, STEPS, StallWatch, session_cpu_s
from gpu_runners.config import STILL_S
from tests.acceptance.deployment import eventually


class World:
    """A clock and a child's processor time, moved by hand."""

    def __init__(self, kind: RunnerJobKind = RunnerJobKind.DISTILL) -> None:
        self.now, self.used = 0.0, 0.0
        self.watch = StallWatch(kind, cpu_s=lambda: self.used, clock=lambda: self.now)

    def passes(self, seconds: float, *, working: bool) -> str | None:
        """The first verdict within that time, looked for every two seconds."""
        for _ in range(int(seconds / 2)):
            self.now += 2
            self.used += 1.0 if working else 0.0
            if (why := self.watch.verdict()) is not None:
                return why
        return None


def test_a_child_that_uses_no_processor_and_says_nothing_stands_still() -> None:
    world = World()
    assert world.passes(STILL_S - 2, working=False) is None
    assert "no processor" in str(world.passes(4, working=False))


def test_a_word_or_a_second_of_work_begins_it_anew() -> None:
    world = World()
    for _ in range(5):
        assert world.passes(STILL_S - 4, working=False) is None
        world.watch.record_event()
        assert world.passes(STILL_S - 4, working=False) is None
        assert world.passes(2, working=True) is None


def test_work_without_a_step_may_last_as_long_as_its_kind_may_be_silent() -> None:
    world = World()
    assert world.passes(SILENT_S[RunnerJobKind.DISTILL] - 2, working=True) is None
    assert "no step" in str(world.passes(4, working=True))


def test_between_steps_it_goes_by_the_longest_of_them() -> None:
    world = World()
    for step in range(1, 5):
        assert world.passes(14, working=True) is None
        world.watch.record_event(step=step, n_steps=100)
    expected = max(LEAST_STEP_S, STEPS * 14)
    assert world.passes(expected - 2, working=True) is None
    assert "no step" in str(world.passes(4, working=True))


def test_a_child_that_repeats_itself_makes_no_step() -> None:
    world = World()
    for step in (1, 2, 3):
        world.passes(2, working=True)
        world.watch.record_event(step=step, n_steps=100, note="epoch 1")
    for _ in range(int(LEAST_STEP_S / 2) - 1):
        assert world.passes(2, working=True) is None
        world.watch.record_event(step=3, n_steps=100, note="epoch 1")
    assert "no step" in str(world.passes(4, working=True))


def test_the_step_that_ends_a_long_epoch_may_last_as_long_as_the_epoch() -> None:
    """It validates: of a training of 100,000 rows on a CPU for longer than 50 quick steps and ten minutes."""
    world = World(RunnerJobKind.DISTILL_CAUSAL)
    for step in range(1, 402):
        world.passes(4, working=True)
        world.watch.record_event(step=step, n_steps=1000)
    assert world.passes(1600 - 2, working=True) is None
    assert "no step" in str(world.passes(4, working=True))


def test_after_the_last_step_the_kinds_own_time_holds_again() -> None:
    world = World()
    for step in (1, 2, 3):
        world.passes(2, working=True)
        world.watch.record_event(step=step, n_steps=3)
    assert world.passes(SILENT_S[RunnerJobKind.DISTILL] - 2, working=True) is None


def test_what_the_agent_slept_through_is_not_held_against_its_child() -> None:
    world = World()
    assert world.passes(STILL_S - 10, working=False) is None
    world.now += 10_000
    assert world.watch.verdict() is None
    assert world.passes(STILL_S - 4, working=False) is None


@pytest.mark.nightly
def test_the_time_of_a_session_counts_its_grandchildren_and_stands_when_it_is_stopped() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        eventually(lambda: (session_cpu_s(process.pid) or 0) > 0.5, within_s=30, what="the grandchild works")
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(0.2)
        before = session_cpu_s(process.pid)
        time.sleep(1.0)
        assert session_cpu_s(process.pid) == before
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    eventually(lambda: session_cpu_s(process.pid) is None, within_s=10)
