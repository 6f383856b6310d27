"""The lines about runners and bases: who reported lately, and what one of them found when it looked at a base.

To look costs a runner milliseconds, or some small files of a hub, and the customer nothing. A look at a good base
counts for some minutes."""

import shutil
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backend.blobs import put_json
from backend.domain.jobs.base_checks import CheckBaseJob, CheckBaseResult, RunnerReport, check_base_result
from backend.domain.jobs.result_checks import BadResult
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.planning.preflight.base_lines import (
    BaseInUse,
    KnownRunner,
    base_lines,
    bases_of,
    runner_line,
)
from backend.domain.planning.preflight.lines import PreflightLine
from backend.domain.planning.preflight.size_lines import disk_line, memory_line, transfer_line
from backend.domain.spec.parsing import Spec
from backend.rest.async_queries import let_go
from backend.runner_jobs import leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import Runner, RunnerJob, RunnerJobStatus
from backend.tenants.isolation import tenant_scope
from backend.wakeups import listening

ALIVE_S = 120.0
LOOK_WAIT_S = 10.0  # for one base; a hub that takes longer leaves it not known
LOOK_AGAIN_S = 0.5
COUNTS_FOR = timedelta(minutes=10)


def check_runners(
    tenant_id: UUID, spec: Spec, *, extracts: bool = True, wait_s: float = LOOK_WAIT_S
) -> list[PreflightLine]:
    """The lines of each base that the spec trains (`bases_of`). Outside a transaction: runners must see the job that
    is waited for."""
    runners = known_runners()
    free_bytes = _free_bytes()
    lines: list[PreflightLine] = []
    for base in bases_of(spec, extracts=extracts):
        looked, looked_by = look_at(tenant_id, base, runners, wait_s=wait_s)
        lines += [
            runner_line(base, runners),
            *base_lines(base, looked, looked_by, runners),
            memory_line(spec, base, looked, runners),
            transfer_line(spec, base, looked, limit_bytes=settings.KOLM_MAX_BLOB_BYTES),
            disk_line(spec, base, looked, free_bytes=free_bytes),
        ]
    return lines


def known_runners() -> list[KnownRunner]:
    """The runners that reported within two minutes, by name. A report of another release that cannot be read here is
    left out: what it would say is not known."""
    since = timezone.now() - timedelta(seconds=ALIVE_S)
    runners = []
    for row in Runner.objects.filter(seen_at__gt=since).order_by("name"):
        try:
            runners.append(KnownRunner(name=row.name, report=RunnerReport.from_json(row.report)))
        except (ValueError, TypeError):
            continue
    return runners


def look_at(
    tenant_id: UUID, base: BaseInUse, runners: list[KnownRunner], *, wait_s: float
) -> tuple[CheckBaseResult | None, str]:
    """Look at a base: what a runner sees, and which one; (None, "") where none that looks at bases is there or answers
    in time. A base that was good within ten minutes is not looked at again; a fault is, since it may be mended."""
    payload = CheckBaseJob(base_model=base.name, kind=base.kind.value).to_json()
    with tenant_scope(tenant_id):
        earlier = _earlier_look(tenant_id, payload)
        if earlier is None and not any(RunnerJobKind.CHECK_BASE in runner.report.kinds for runner in runners):
            return None, ""
        job = earlier or leases.offer(tenant_id, Offer(kind=RunnerJobKind.CHECK_BASE, payload=payload, inputs=()))
    job = _wait(job.id, wait_s)
    seen = _seen_by(job) if job.status == RunnerJobStatus.SUCCEEDED else None
    return (None, "") if seen is None else (seen, job.runner)


def _seen_by(job: RunnerJob) -> CheckBaseResult | None:
    """The findings of a finished job's runner; None where they cannot be read."""
    try:
        return check_base_result(leases.result_of(job))
    except BadResult:
        return None


def _earlier_look(tenant_id: UUID, payload: dict[str, str]) -> RunnerJob | None:
    digest = put_json(tenant_id, payload)
    since = timezone.now() - COUNTS_FOR
    jobs = RunnerJob.objects.filter(tenant_id=tenant_id, kind=RunnerJobKind.CHECK_BASE, payload_sha256=digest)
    job = jobs.filter(status=RunnerJobStatus.SUCCEEDED, ended_at__gt=since).order_by("-ended_at").first()
    seen = None if job is None else _seen_by(job)
    return None if seen is None or seen.code else job


def _wait(job_id: UUID, wait_s: float) -> RunnerJob:
    """The job when it has ended, or as it stands when the time is up: it is canceled then."""
    until = time.monotonic() + wait_s
    with listening(job_id) as wait:
        while True:
            job = RunnerJob.objects.get(id=job_id)
            left_s = until - time.monotonic()
            if job.status not in (RunnerJobStatus.QUEUED, RunnerJobStatus.LEASED):
                return job
            if left_s <= 0:
                leases.cancel(job_id)
                return job
            let_go()  # a request that waits must not hold a connection of the pool
            wait(min(left_s, LOOK_AGAIN_S))


def _free_bytes() -> int | None:
    try:
        return shutil.disk_usage(Path(settings.KOLM_BLOB_DIR)).free
    except OSError:
        return None
