"""POST /v1/artifacts/{id}/run: the artifact answers, on a runner.

The web process loads no model: it queues an `infer` job, which an idle runner takes at once (runners wait with an open
request), and holds the request until the result is there.
"""

import time
from typing import Any, ClassVar
from uuid import UUID

from django.db import transaction
from django.utils.decorators import method_decorator
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.artifacts.api import find_artifact
from backend.domain.errors import Unavailable
from backend.domain.ids import Prefix, encode_id
from backend.domain.pricing import cost_microusd, price_book
from backend.domain.runner_jobs import InferJob, RunnerJobKind
from backend.domain.runner_results import BadResult, infer_result
from backend.rest.async_queries import let_go
from backend.rest.strict import StrictSerializer
from backend.runner_jobs import leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.tenants.auth import IsTenant
from backend.tenants.scope import tenant_scope
from backend.tenants.scopes import HasScope
from backend.usage.ledger import Fact, record
from backend.wakeups import listening

MAX_INPUTS = 64
MAX_CHARS = 8_000
WAIT_S = 30.0
SKU = "runner.second"


class RunRequest(StrictSerializer):
    inputs = s.ListField(
        child=s.CharField(max_length=MAX_CHARS, trim_whitespace=False),
        min_length=1,
        max_length=MAX_INPUTS,
        help_text="Texts to answer.",
    )


class RunOutput(s.Serializer[object]):
    label = s.CharField()
    confidence = s.FloatField(
        help_text="Calibrated on validation pairs: of answers given with 0.9, about nine in ten are right."
    )
    latency_us = s.IntegerField()


class RunShape(s.Serializer[object]):
    object = s.ChoiceField(["run"])
    artifact = s.CharField()
    outputs = s.ListField(child=RunOutput())
    load_ms = s.IntegerField(help_text="Time the runner took to load the artifact; 0 when it had it.")
    cost_microusd = s.IntegerField()


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class RunView(APIView):
    """Not atomic: the job must be visible to runners while this request waits for it."""

    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("artifacts:run")]
    spending_methods: ClassVar = ("POST",)

    @extend_schema(operation_id="artifacts_run", request=RunRequest, responses=RunShape)
    def post(self, request: Request, artifact: str) -> Response:
        """Answer up to 64 inputs: label, calibrated confidence, latency."""
        tenant_id: UUID = request.auth.tenant_id
        with tenant_scope(tenant_id):
            row = find_artifact(request, artifact)
            form = RunRequest(data=request.data)
            form.is_valid(raise_exception=True)
            job = InferJob(artifact_sha256=row.sha256, inputs=form.validated_data["inputs"])
            offer = Offer(kind=RunnerJobKind.INFER, payload=job.to_json(), inputs=(row.sha256,))
            queued = leases.offer(tenant_id, offer)
        started = time.monotonic()
        try:
            result = infer_result(_wait(queued.id), n=len(job.inputs))
        except BadResult as bad:
            raise Unavailable(bad.message, code="run_failed") from None
        cost = _book(tenant_id, queued.id, time.monotonic() - started)
        body: dict[str, Any] = {
            "object": "run",
            "artifact": encode_id(Prefix.ARTIFACT, row.id),
            "outputs": result.outputs,
            "load_ms": result.load_ms,
            "cost_microusd": cost,
        }
        return Response(body)


def _wait(job_id: UUID) -> dict[str, Any]:
    """The job's result. Raises Unavailable when no runner answers in time, or the runner could not run it."""
    until = time.monotonic() + WAIT_S
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
                    f"No runner answered within {WAIT_S:.0f} s; try again. If none ever does, none is running here.",
                    code="no_runner",
                )
            let_go()  # a request that waits must not hold a connection of the pool
            wait(min(left_s, 1.0))


def _book(tenant_id: UUID, job_id: UUID, elapsed_s: float) -> int:
    """Runner time of one call, in whole milliseconds of the second's price."""
    book = price_book()
    job = RunnerJob.objects.get(id=job_id)
    if job.started_at is not None and job.ended_at is not None:
        elapsed_s = (job.ended_at - job.started_at).total_seconds()
    elapsed_ms = max(1, round(elapsed_s * 1000))
    cost = cost_microusd(elapsed_ms, book.prices[SKU]) // 1000
    fact = Fact(
        sku="runner.millisecond",
        quantity=elapsed_ms,
        unit="millisecond",
        amount_microusd=cost,
        price_version=book.version,
        source_key=f"runner:{job_id}",
    )
    with tenant_scope(tenant_id):
        record(tenant_id, [fact], compile_id=None, step="run")
    return cost
