"""The far side of the lease API: a runner that keeps the K best scores, and a customer that asks for it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.test import Client

from backend.blobs import get_json
from backend.domain.ids import Prefix, decode_id
from backend.domain.jobs.runner_jobs import RunnerJobKind, SelectJob
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob
from tests.factories import bearer

NDJSON = "application/x-ndjson"


def post(secret: str, body: Any, *, query: str = "", wait: int = 0, **headers: str) -> Any:
    """`body` as it is when it is bytes, as JSON when it is an object, else one line a row."""
    given = bearer(secret) | {"Prefer": f"wait={wait}"} | headers
    if isinstance(body, dict):
        return Client().post("/v1/select" + query, json.dumps(body), content_type="application/json", headers=given)
    data = body if isinstance(body, bytes) else lines(body)
    return Client().post("/v1/select" + query, data, content_type=NDJSON, headers=given)


def lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def get(secret: str, path: str) -> Any:
    return Client().get(path, headers=bearer(secret))


def best_scores(tenant_id: Any, job: SelectJob) -> dict[str, Any]:
    """A result that passes every check: the K best scores, each row a cluster of its own."""
    scores = get_json(tenant_id, job.columns_sha256)["scores"] or [0.0] * job.n
    picks = sorted(range(job.n), key=lambda i: (-scores[i], i))[: job.k]
    return {
        "picks": picks,
        "nearest_pick_ppm": [250_000] * len(picks),
        "cluster_of": list(range(job.n)),
        "floor_dropped": [],
        "report": {"method": "top_k", "n": job.n, "k_actual": len(picks)},
        "log": "slice all rows",
        "embedder": "" if job.width else "minilm@sha256:0",
        "n_tokens": 0 if job.width else 4 * job.n,
        "runner_ms": 5,
    }


def work_on_next(result: Callable[[Any, SelectJob], dict[str, Any]] = best_scores) -> SelectJob | None:
    """Claim the next select job and answer it."""
    claim = leases.claim("r1", [RunnerJobKind.SELECT])
    if claim is None:
        return None
    job_id = decode_id(Prefix.RUNNER_JOB, claim.job_id)
    job = SelectJob.from_json(claim.payload)
    leases.report_success(job_id, claim.token, result(RunnerJob.objects.get(id=job_id).tenant_id, job))
    return job


@contextmanager
def runner() -> Iterator[None]:
    """One that works on every job until the end of the block."""
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.wait(0.02):
                work_on_next()
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)
