"""POST /v1/artifacts/{id}/run: asked of a runner, waited for, paid by the millisecond."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from backend.artifacts.models import Artifact
from backend.domain.ids import Prefix, decode_id
from backend.domain.jobs.runner_jobs import InferJob, RunnerJobKind
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.serving.api import run as run_api
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.compile_factories import make_artifact, make_compile, make_receipts, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def artifact(committed_db: None) -> Artifact:
    RunnerJob.objects.all().delete()
    row = make_compile(make_tenant())
    make_receipts(row)
    return make_artifact(row)


def run(secret: str, artifact: Artifact, body: Any) -> Any:
    path = f"/v1/artifacts/{public_id(artifact)}/run"
    return Client().post(path, json.dumps(body), content_type="application/json", headers=bearer(secret))


@contextmanager
def runner(
    *,
    fails: bool = False,
    latency_us: int = 800,
    loads_s: float = 0.0,
    answer: dict[str, Any] | None = None,
    **more: Any,
) -> Iterator[list[InferJob]]:
    """One runner that takes the next job and answers it through the lease API's own functions: `answer` to each input,
    else a label with `more`."""
    jobs: list[InferJob] = []
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.wait(0.02):
                claim = leases.claim("r1", [RunnerJobKind.INFER])
                if claim is None:
                    continue
                jobs.append(InferJob.from_json(claim.payload))
                key = (decode_id(Prefix.RUNNER_JOB, claim.job_id), claim.token)
                if fails:
                    leases.report_failure(*key, code="untrusted", message="unknown key", is_retryable=True)
                    continue
                stop.wait(loads_s)
                row = answer or {"label": "refund", "confidence": 0.9, "latency_us": latency_us} | more
                outputs = [row for _ in jobs[-1].inputs]
                leases.report_success(*key, {"outputs": outputs, "load_ms": 5 + round(1000 * loads_s)})
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield jobs
    finally:
        stop.set()
        thread.join(timeout=10)


def test_the_artifact_answers_each_input_and_the_call_is_on_the_bill_once(artifact):
    secret = make_api_key(artifact.tenant_id)
    with runner() as jobs:
        answer = run(secret, artifact, {"inputs": ["give it back", " hello "]})
    assert answer.status_code == 200
    body = answer.json()
    assert [output["label"] for output in body["outputs"]] == ["refund", "refund"]
    assert (body["artifact"], body["load_ms"]) == (public_id(artifact), 5)
    assert jobs == [InferJob(artifact_sha256=artifact.sha256, inputs=["give it back", " hello "])]
    with tenant_scope(artifact.tenant_id):
        fact = UsageFact.objects.get(sku="runner.millisecond")
    assert (fact.step, fact.compile_id, fact.amount_microusd) == ("run", None, body["cost_microusd"])
    assert fact.quantity == 2  # two answers of 0.8 ms


@pytest.mark.parametrize("body", [{"input": "give it back"}, {"input": ["give it back"]}])
def test_the_body_of_kolm_serve_is_taken_too(artifact, body):
    with runner() as jobs:
        answer = run(make_api_key(artifact.tenant_id), artifact, body)
    assert (answer.status_code, jobs[0].inputs) == (200, ["give it back"])


@pytest.mark.parametrize("body", [{}, {"input": "a", "inputs": ["a"]}, {"inputs": "a"}, {"input": []}, {"input": 3}])
def test_a_body_without_one_list_of_inputs_is_refused(artifact, body):
    assert run(make_api_key(artifact.tenant_id), artifact, body).status_code == 400


def test_a_span_students_answer_says_where_each_field_stands_and_how_sure_it_is(committed_db):
    RunnerJob.objects.all().delete()
    row = make_compile(make_tenant())
    make_receipts(row)
    artifact = make_artifact(row, task_type="json")
    copied = {"path": "/city", "start": 6, "end": 12, "confidence_ppm": 990_000}
    chosen = {"path": "/when", "start": None, "end": None, "confidence_ppm": 410_000}
    answer = {"output": '{"city": "Berlin"}', "finish_reason": "stop", "n_tokens": 0, "confidence": 0.4}
    with runner(answer=answer | {"fields": [copied, chosen], "latency_us": 900}):
        (output,) = run(make_api_key(artifact.tenant_id), artifact, {"inputs": ["a for Berlin"]}).json()["outputs"]
    assert (output["fields"], output["confidence"]) == ([copied, chosen], 0.4)
    with runner(answer=answer | {"fields": [copied | {"start": "6"}], "latency_us": 900}):
        assert run(make_api_key(artifact.tenant_id), artifact, {"inputs": ["a"]}).json()["code"] == "run_failed"


def quantity_and_charge(artifact: Artifact, **runs: Any) -> tuple[int, int]:
    with runner(**runs):
        body = run(make_api_key(artifact.tenant_id), artifact, {"inputs": ["a", "b"]}).json()
    with tenant_scope(artifact.tenant_id):
        fact = UsageFact.objects.get(sku="runner.millisecond")
    assert fact.amount_microusd == body["cost_microusd"]
    return fact.quantity, fact.amount_microusd


def test_an_answer_that_the_runner_is_unsure_of_says_so(artifact):
    with runner(is_unsure=True):
        outputs = run(make_api_key(artifact.tenant_id), artifact, {"inputs": ["a"]}).json()["outputs"]
    assert [(output["label"], output["is_unsure"]) for output in outputs] == [("refund", True)]


def test_loading_the_artifact_is_on_no_bill(artifact):
    assert quantity_and_charge(artifact, latency_us=20_000, loads_s=0.3) == (40, 6)  # 150 micro-USD a second


def test_no_answer_is_billed_for_longer_than_the_runner_had_the_job(artifact):
    ms, microusd = quantity_and_charge(artifact, latency_us=60_000_000)
    assert 1 <= ms < 20_000
    assert microusd < 3_000


def test_when_no_runner_answers_in_time_that_is_said_and_the_job_is_withdrawn(artifact, monkeypatch):
    monkeypatch.setattr(run_api, "WAIT_S", 0.3)
    answer = run(make_api_key(artifact.tenant_id), artifact, {"inputs": ["a"]})
    assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "no_runner", True)
    assert RunnerJob.objects.get(tenant_id=artifact.tenant_id).status == RunnerJobStatus.CANCELED
    with tenant_scope(artifact.tenant_id):
        assert not UsageFact.objects.exists()


def test_a_runner_that_cannot_run_it_ends_the_call_at_once(artifact):
    with runner(fails=True) as jobs:
        answer = run(make_api_key(artifact.tenant_id), artifact, {"inputs": ["a"]})
    assert (answer.status_code, answer.json()["code"], len(jobs)) == (503, "run_failed", 1)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/inputs"),
        ({"inputs": []}, "/inputs"),
        ({"inputs": "a"}, "/inputs"),
        ({"inputs": [""]}, "/inputs/0"),
        ({"inputs": ["a"] * 65}, "/inputs"),
        ({"inputs": ["a" * 8001]}, "/inputs/0"),
        ({"inputs": ["a", None]}, "/inputs/1"),
        ({"inputs": ["a"], "temperature": 1}, "/temperature"),
    ],
)
def test_a_call_that_makes_no_sense_queues_nothing(artifact, body, pointer):
    answer = run(make_api_key(artifact.tenant_id), artifact, body)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert not RunnerJob.objects.filter(tenant_id=artifact.tenant_id).exists()


def test_another_tenants_artifact_is_not_there_to_run(artifact):
    stranger = make_tenant()
    answer = run(make_api_key(stranger), artifact, {"inputs": ["a"]})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert not RunnerJob.objects.filter(tenant_id__in=[artifact.tenant_id, stranger.id]).exists()


def test_running_needs_its_own_scope(artifact):
    reader = make_api_key(artifact.tenant_id, scopes=["artifacts:read"])
    assert run(reader, artifact, {"inputs": ["a"]}).status_code == 403
