"""A day of two runners, played on a clock of its own with the real queue: every offer, claim, heartbeat and report is
the product's, on a real Postgres. What is made up is how long jobs take and when they come.

A compile is a training, which keeps a checkpoint, and then an evaluation, which cannot. A preempted training needs
HANDOVER_S until its runner is free, and RESUME_S at its next turn before it goes on, in which no progress is made.
Runners beat every BEAT_S (the product: every 10 s at most) while another tenant's job waits.
"""

import heapq
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from uuid import UUID

from backend.blobs import put_blob
from backend.domain.ids import Prefix, decode_id
from backend.domain.jobs.fair_turns import PREEMPTED
from backend.domain.jobs.runner_jobs import Claim, Progress, RunnerJobKind
from backend.runner_jobs import leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob, RunnerTurn
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant

HANDOVER_S, RESUME_S, BEAT_S, FIRST_CHECKPOINT_S = 5.0, 10.0, 60.0, 20.0
START = datetime(2026, 11, 29, tzinfo=UTC)
HOUR = 3600.0
KINDS = [RunnerJobKind.DISTILL, RunnerJobKind.EVALUATE]


@dataclass(kw_only=True, slots=True)
class Compile:
    """Seconds since the day's beginning. `waited_s` is all that its jobs waited for a runner."""

    owner: str
    at: float
    training_s: float
    evaluation_s: float
    waited_s: float = 0.0
    ended: float = 0.0
    n_turns: int = 0

    @property
    def is_small(self) -> bool:
        return self.owner.startswith("small")


@dataclass(kw_only=True, slots=True)
class Job:
    compile: Compile
    kind: RunnerJobKind
    left_s: float
    queued_at: float
    done_s: float = 0.0


@dataclass(kw_only=True, slots=True)
class Runner:
    name: str
    free_at: float = 0.0
    claim: Claim | None = None
    job: Job | None = None
    works_from: float = 0.0
    ends_at: float = 0.0


def day(seed: int, *, n_big: int = 4, n_small: int = 16, each_big: int = 46, hours: float = 12.0) -> list[Compile]:
    """Big tenants send their trainings, of twenty minutes in the median and an hour at most, in five bursts; a small
    one sends one, of one to three minutes, some time after the first burst."""
    rng = random.Random(seed)
    out = []
    for tenant in range(n_big):
        bursts = sorted(rng.uniform(0, hours / 2 * HOUR) for _ in range(5))
        for _ in range(each_big):
            training_s = min(3600.0, max(300.0, rng.lognormvariate(7.1, 0.5)))
            at = rng.choice(bursts)
            evaluation_s = rng.uniform(20, 90)
            out.append(Compile(owner=f"big {tenant}", at=at, training_s=training_s, evaluation_s=evaluation_s))
    for tenant in range(n_small):
        at, training_s = rng.uniform(HOUR / 2, hours * HOUR), rng.uniform(60, 180)
        out.append(Compile(owner=f"small {tenant}", at=at, training_s=training_s, evaluation_s=rng.uniform(10, 30)))
    return sorted(out, key=lambda compile: compile.at)


@dataclass(kw_only=True)
class World:
    """`tenants` by the names of the owners; the same tenant for all is a plain queue, first in, first out."""

    tenants: dict[str, Tenant]
    runners: list[Runner]
    now: float = 0.0
    jobs: dict[UUID, Job] = field(default_factory=dict)
    n_preempted: int = 0

    def play(self, compiles: Sequence[Compile]) -> None:
        """Work off all compiles. Whatever was in the queue before is deleted."""
        RunnerJob.objects.all().delete()
        RunnerTurn.objects.all().delete()
        coming = [(compile.at, n) for n, compile in enumerate(compiles)]
        heapq.heapify(coming)
        with self._clock():
            while coming or self.jobs:
                self.now = self._next_moment(coming)
                while coming and coming[0][0] <= self.now:
                    compile = compiles[heapq.heappop(coming)[1]]
                    self._offer(compile, RunnerJobKind.DISTILL, compile.training_s)
                for runner in self.runners:
                    self._turn(runner)

    def _next_moment(self, coming: list[tuple[float, int]]) -> float:
        moments = [at for at, _ in coming[:1]]
        at_work = [runner.job for runner in self.runners if runner.job is not None]
        waiting = [job for job in self.jobs.values() if job not in at_work]
        for runner in self.runners:
            if runner.job is None:
                moments += [runner.free_at] if waiting else []
            else:
                matters = self._matters(runner.job)
                moments.append(min(runner.ends_at, self.now + BEAT_S) if matters else runner.ends_at)
        return max(self.now, min(moments))

    def _matters(self, job: Job) -> bool:
        """Say whether anything could come of a heartbeat: another tenant's job is there."""
        mine = self._tenant_of(job)
        return any(self._tenant_of(other) != mine for other in self.jobs.values())

    def _tenant_of(self, job: Job) -> UUID:
        return self.tenants[job.compile.owner].id

    def _offer(self, compile: Compile, kind: RunnerJobKind, seconds: float) -> None:
        job = Job(compile=compile, kind=kind, left_s=seconds, queued_at=self.now)
        tenant_id = self._tenant_of(job)
        with tenant_scope(tenant_id):
            row = leases.offer(tenant_id, Offer(kind=kind, payload={"base_model": "tiny"}, inputs=()))
        self.jobs[row.id] = job

    def _turn(self, runner: Runner) -> None:
        if runner.job is not None and runner.ends_at <= self.now:
            self._finish(runner)
        elif runner.job is not None and self._matters(runner.job):
            self._beat(runner)
        if runner.job is None and runner.free_at <= self.now:
            self._claim(runner)

    def _claim(self, runner: Runner) -> None:
        claim = leases.claim(runner.name, KINDS)
        if claim is None:
            return
        job = self.jobs[decode_id(Prefix.RUNNER_JOB, claim.job_id)]
        job.compile.waited_s += self.now - job.queued_at
        job.compile.n_turns += 1
        runner.claim, runner.job = claim, job
        runner.works_from = self.now + (RESUME_S if job.done_s else 0.0)
        runner.ends_at = runner.works_from + job.left_s

    def _beat(self, runner: Runner) -> None:
        job, claim = runner.job, runner.claim
        assert job is not None
        assert claim is not None
        worked_s = self.now - runner.works_from
        if job.kind != RunnerJobKind.DISTILL or worked_s < FIRST_CHECKPOINT_S:
            return
        id = decode_id(Prefix.RUNNER_JOB, claim.job_id)
        step = int(job.done_s + worked_s)
        answer = leases.heartbeat(id, claim.token, self._progress(id, job, step))
        if answer.preempt:
            job.done_s, job.left_s = job.done_s + worked_s, job.left_s - worked_s
            leases.report_failure(id, claim.token, code=PREEMPTED, message="", is_retryable=True)
            job.queued_at, runner.job, runner.claim = self.now, None, None
            runner.free_at = self.now + HANDOVER_S
            self.n_preempted += 1

    def _progress(self, id: UUID, job: Job, step: int) -> Progress:
        total = int(job.done_s + job.left_s) + 1
        # the bytes do not matter here, only that each turn keeps some that are further on
        checkpoint = put_blob(self._tenant_of(job), f"{id} {job.compile.n_turns}".encode())
        return Progress(
            step=step,
            n_steps=total,
            loss=0.5,
            eta_s=float(total - step),
            checkpoint_sha256=checkpoint,
            note="",
            checkpoint_step=step,
        )

    def _finish(self, runner: Runner) -> None:
        job, claim = runner.job, runner.claim
        assert job is not None
        assert claim is not None
        id = decode_id(Prefix.RUNNER_JOB, claim.job_id)
        leases.report_success(id, claim.token, {"n": 1})
        del self.jobs[id]
        runner.job, runner.claim, runner.free_at = None, None, self.now
        if job.kind == RunnerJobKind.DISTILL:
            self._offer(job.compile, RunnerJobKind.EVALUATE, job.compile.evaluation_s)
        else:
            job.compile.ended = self.now

    @contextmanager
    def _clock(self) -> Iterator[None]:
        with patch("django.utils.timezone.now", lambda: START + timedelta(seconds=self.now)):
            yield


def play(compiles: Sequence[Compile], tenants: dict[str, Tenant], *, n_runners: int = 2) -> World:
    world = World(tenants=tenants, runners=[Runner(name=f"r{n}") for n in range(n_runners)])
    world.play(compiles)
    return world
