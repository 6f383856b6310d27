"""The check that a child process moves on: an agent that only looked for its death would prolong the lease of a stopped
training for ever.

Two rules. Nothing was heard of the child for STILL_S and it used no processor meanwhile: it is stopped, or waits for
what never comes. Or nothing was heard of it for as long as its kind of job may be silent: it spins. While steps come,
that time follows them: 50 times the longest that one took, ten minutes at least, and not less than it has worked so
far: the step that ends an epoch validates, which takes a part of the epoch. The same step told again is nothing heard.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from backend.domain.jobs.runner_jobs import RunnerJobKind
from gpu_runners.config import STILL_S

LEAST_STEP_S, STEPS = 600.0, 50.0
_LOOK_EVERY_S, _LAG_S = 2.0, 10.0
# without a sign, working: loading a base, a validation, one pass over 50,000 held-out inputs on a CPU
SILENT_S = {
    RunnerJobKind.DISTILL: 1800.0,
    RunnerJobKind.DISTILL_CAUSAL: 3600.0,
    RunnerJobKind.DISTILL_SPANS: 3600.0,
    RunnerJobKind.EVALUATE: 3600.0,
    RunnerJobKind.EVALUATE_CAUSAL: 7200.0,
    RunnerJobKind.EVALUATE_SPANS: 3600.0,
    RunnerJobKind.PACK_RECIPES: 3600.0,
    RunnerJobKind.SELECT: 3600.0,
}


class StallWatch:
    """The watch over one job. `cpu_s` gives the processor's seconds of the child and all that it started, None where
    that cannot be known: then only the second rule holds."""

    def __init__(
        self,
        kind: RunnerJobKind,
        *,
        cpu_s: Callable[[], float | None],
        still_s: float = STILL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kind, self._cpu_s, self._still_s, self._clock = kind, cpu_s, still_s, clock
        self._heard_at = self._still_since = self._looked_at = clock()
        self._used = cpu_s()
        self._first_step_at = self._last_step_at = float("nan")
        self._last_step: tuple[int, int, str] | None = None
        self._longest_step_s = 0.0
        self._is_between_steps = False

    def record_event(self, *, step: int = 0, n_steps: int = 0, note: str = "") -> None:
        """An event came; of a step, which is the last one where `step` is `n_steps`."""
        now = self._clock()
        if step and (step, n_steps, note) == self._last_step:
            return
        if step and self._last_step is None:
            self._first_step_at = now
        elif step:
            self._longest_step_s = max(self._longest_step_s, now - self._last_step_at)
        if step:
            self._last_step = (step, n_steps, note)
            self._last_step_at, self._is_between_steps = now, step < n_steps
        self._heard_at = self._still_since = now

    def verdict(self) -> str | None:
        """Say why the child counts as standing still, or None. Cheap to ask often."""
        now = self._clock()
        if now - self._looked_at < _LOOK_EVERY_S:
            return None
        if now - self._looked_at > _LAG_S:  # the agent itself was stopped, and the child perhaps with it
            self._heard_at = self._still_since = now
        self._looked_at = now
        used = self._cpu_s()
        if used is None or used != self._used:
            self._used, self._still_since = used, now
        if now - self._still_since >= self._still_s:
            return f"it used no processor and said nothing for {now - self._still_since:.0f} s"
        if now - self._heard_at >= self._silent_s():
            return f"it worked and made no step for {now - self._heard_at:.0f} s"
        return None

    def _silent_s(self) -> float:
        longest = SILENT_S.get(self._kind, max(SILENT_S.values()))
        if not self._is_between_steps or not self._longest_step_s:
            return longest
        worked_s = self._last_step_at - self._first_step_at
        return min(longest, max(LEAST_STEP_S, STEPS * self._longest_step_s, worked_s))


def session_cpu_s(leader: int) -> float | None:
    """Processor seconds of the processes of a session, those that ended and were waited for included. From /proc: None
    elsewhere, and when nobody of it is left."""
    ticks, is_there = 0, False
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(leader):  # session; the name before ")" may hold anything
            ticks += sum(int(field) for field in fields[11:15])
            is_there = True
    return ticks / os.sysconf("SC_CLK_TCK") if is_there else None
