"""An artifact answers, on a runner: the job is offered, waited for and booked. Used by the API and by the playground.

Not inside a transaction: runners must see the job while the caller waits for it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backend.artifacts.models import Artifact
from backend.domain.errors import Unavailable
from backend.domain.ids import Prefix, encode_id
from backend.domain.jobs.runner_jobs import InferJob, InferResult, RunnerJobKind
from backend.domain.jobs.runner_results import BadResult, infer_result
from backend.domain.money.pricing import cost_microusd, price_book
from backend.domain.serving.wire import Grant, grant_key, sign_grant
from backend.rest.async_queries import let_go
from backend.runner_jobs import leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from backend.wakeups import listening

SKU = "runner.second"


def run_inputs(
    row: Artifact, inputs: Sequence[str], *, wait_s: float, api_key_id: UUID | None = None
) -> tuple[InferResult, int]:
    """Return what the artifact answers, and what that cost in micro-USD. Raises Unavailable: no_runner when none
    answers in time, run_failed when the one that did could not run it."""
    with tenant_scope(row.tenant_id):
        job = InferJob(artifact_sha256=row.sha256, inputs=list(inputs), grant=_feedback_grant(row))
        payload = job.to_json()
        if not job.grant:
            del payload["grant"]  # a runner of the release before knows no such key
        offer = Offer(kind=RunnerJobKind.INFER, payload=payload, inputs=(row.sha256,))
        queued = leases.offer(row.tenant_id, offer)
    try:
        result = infer_result(_wait(queued.id, wait_s), n=len(job.inputs), task_type=row.manifest["task_type"])
    except BadResult as bad:
        raise Unavailable(bad.message, code="run_failed") from None
    return result, _book(row.tenant_id, queued.id, answer_ms(result.outputs), api_key_id)


def answer_ms(outputs: Sequence[Mapping[str, Any]]) -> int:
    """The time of the texts' own answers, in whole milliseconds, at least one. Waiting for a runner, loading the
    artifact and handing it over are not in it.

    >>> answer_ms([{"latency_us": 1_400}, {"latency_us": 1_200}]), answer_ms([{"latency_us": 3}])
    (3, 1)
    """
    return max(1, round(sum(row["latency_us"] for row in outputs) / 1000))


def _feedback_grant(row: Artifact) -> str:
    """Sign whose the runner's counts of a recipe pack are. Too old from the start: it opens no artifact."""
    if not any(member["path"] == "recipes.json" for member in row.manifest.get("members", [])):
        return ""
    grant = Grant(
        tenant=row.tenant_id.hex,
        artifact=encode_id(Prefix.ARTIFACT, row.id),
        sha256=row.sha256,
        deployment="",
        api_key="",
        request="",
        cache_salt="",
        max_concurrent=0,
        idle_s=0,
        pinned=False,
        expires_at=0,
    )
    return sign_grant(grant, grant_key(settings.KOLM_RUNNER_TOKEN))


def _wait(job_id: UUID, wait_s: float) -> dict[str, Any]:
    """The job's result. Raises Unavailable when no runner answers in time, or the runner could not run it."""
    until = time.monotonic() + wait_s
    with listening(job_id) as wait:
        while True:
            job = RunnerJob.objects.get(id=job_id)
            if job.status == RunnerJobStatus.SUCCEEDED:
                return leases.result_of(job)
            if job.status in (RunnerJobStatus.FAILED, RunnerJobStatus.CANCELED):
                raise Unavailable(f"The runner could not run this artifact: {leases.error_of(job)}", code="run_failed")
            left_s = until - time.monotonic()
            if left_s <= 0:
                leases.cancel(job_id)
                raise Unavailable(
                    f"No runner answered within {wait_s:.0f} s; try again. If none ever does, none is running here.",
                    code="no_runner",
                )
            let_go()  # a request that waits must not hold a connection of the pool
            wait(min(left_s, 1.0))


def _book(tenant_id: UUID, job_id: UUID, own_ms: int, api_key_id: UUID | None) -> int:
    """Runner time of one call, in whole milliseconds of the second's price: what the runner says its answers took, but
    never more than it had the job. Returns what was charged."""
    book = price_book(timezone.now())
    job = RunnerJob.objects.get(id=job_id)
    if job.started_at is not None and job.ended_at is not None:
        held_ms = round((job.ended_at - job.started_at).total_seconds() * 1000)
        own_ms = max(1, min(own_ms, held_ms))
    cost = cost_microusd(own_ms, book.prices[SKU]) // 1000
    fact = Fact(
        sku="runner.millisecond",
        quantity=own_ms,
        unit="millisecond",
        amount_microusd=cost,
        price_version=book.version,
        source_key=f"runner:{job_id}",
    )
    with tenant_scope(tenant_id):
        return record(tenant_id, [fact], compile_id=None, step="run", api_key_id=api_key_id)
