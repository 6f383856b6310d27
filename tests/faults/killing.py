"""Kills processes of a deployment with SIGKILL at chosen moments of a compile, as its rows tell them.

The rows are read from Postgres itself every few milliseconds: nothing that may be dead stands in between.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID

import psutil
import psycopg

from backend.domain.lifecycle import STEPS, StepName
from deploy.embedded.layout import Part
from tests.acceptance.deployment import TERMINAL, Deployment, Row

LOOK_EVERY_S = 0.005
ASKS_TEACHER = frozenset({StepName.SYNTHESIS, StepName.LABELING})
# beside the worker, which dies at every step
ALSO = {
    StepName.VERIFICATION: Part.UPKEEP,
    StepName.SELECTION: Part.VALKEY,
    StepName.LABELING: Part.DELIVERIES,
    StepName.DISTILLATION: Part.POSTGRES,
    StepName.EVALUATION: Part.WEB,
    StepName.GATE: Part.SERVER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the rows say of the compile at one moment."""

    status: str
    started: frozenset[str]
    n_in_flight: int
    job: Row | None


Moment = Callable[[Seen], bool]


@dataclass(slots=True, kw_only=True)
class Killer:
    """Each (part, moment) is done once, in any order."""

    deployment: Deployment
    compile: UUID
    plan: list[tuple[Part, Moment]]
    kills: Counter[Part] = field(default_factory=Counter)

    def work(self, *, within_s: float) -> str:
        """Until the compile has ended; its status."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            try:
                with self.deployment.connect() as connection:
                    while time.monotonic() < deadline:
                        seen = look(connection, self.compile)
                        if seen.status in TERMINAL:
                            return seen.status
                        self.plan = [(part, at) for part, at in self.plan if not self._kill_when_due(part, at, seen)]
                        time.sleep(LOOK_EVERY_S)
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise AssertionError(f"the compile has not ended within {within_s:.0f} s; still to kill: {len(self.plan)}")

    def _kill_when_due(self, part: Part, when: Moment, seen: Seen) -> bool:
        if not when(seen):
            return False
        kill(self.deployment, part)
        self.kills[part] += 1
        return True


def kill(deployment: Deployment, part: Part) -> None:
    os.kill(deployment.child(part), signal.SIGKILL)


def look(connection: "psycopg.Connection[Row]", compile: UUID) -> Seen:
    query = """
        SELECT c.status,
               array(SELECT e.data->>'step' FROM compiles_compileevent e
                     WHERE e.compile_id = c.id AND e.type = 'step.started') AS started,
               (SELECT count(*) FROM compiles_teachercall t WHERE t.compile_id = c.id AND t.state = 'started') AS n,
               (SELECT row_to_json(j) FROM runner_jobs_runnerjob j
                WHERE j.compile_id = c.id AND j.kind = 'distill' ORDER BY j.created_at DESC LIMIT 1) AS job
        FROM compiles_compile c WHERE c.id = %s
    """
    row = connection.execute(query, [compile]).fetchone()
    assert row is not None
    return Seen(status=row["status"], started=frozenset(row["started"]), n_in_flight=row["n"], job=row["job"])


def at_start_of(step: StepName) -> Moment:
    """When the step has begun; where it asks the teacher, when its calls are in flight."""
    if step in ASKS_TEACHER:
        return lambda seen: step in seen.started and seen.n_in_flight > 0
    return lambda seen: step in seen.started


def in_mid_training(seen: Seen) -> bool:
    """When a checkpoint is kept: what the next runner has to go on from."""
    return seen.job is not None and seen.job["status"] == "leased" and bool(seen.job["checkpoint_sha256"])


def everything_once() -> list[tuple[Part, Moment]]:
    """The worker at the start of every step, the runner in mid-training, everything else once."""
    plan: list[tuple[Part, Moment]] = [(Part.WORKER, at_start_of(step)) for step in STEPS]
    plan += [(part, at_start_of(step)) for step, part in ALSO.items()]
    return [*plan, (Part.RUNNER, in_mid_training)]


@contextmanager
def asleep_with_children(pid: int) -> Iterator[None]:
    """The same for a process and all that it started: a server whose connections hang."""
    with ExitStack() as stack:
        for one in (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))):
            with suppress(ProcessLookupError):
                stack.enter_context(asleep(one))
        yield


@contextmanager
def asleep(pid: int) -> Iterator[None]:
    """The process stopped for the length of a block, in whatever it was doing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have been ended for its silence
            os.kill(pid, signal.SIGCONT)
