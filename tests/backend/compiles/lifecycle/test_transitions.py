"""Cancel and resume: what each status allows."""

import json
from typing import Any

import pytest
from django.test import Client

from backend.compiles import leases
from backend.compiles.models import Compile, CompileEvent, CompileLease, Outbox, StepRun
from backend.domain.lifecycle import MOVES, TERMINAL, CompileStatus, StepStatus
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import change, fresh, hold, make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

RESUMABLE = {CompileStatus.FAILED, CompileStatus.EXPIRED, CompileStatus.CANCELED}


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def secret(tenant):
    return make_api_key(tenant)


def post(client: Client, secret: str, row: Compile, verb: str, body: Any = None) -> Any:
    data = "" if body is None else json.dumps(body)
    address = f"/v1/compiles/{public_id(row)}/{verb}"
    return client.post(address, data, content_type="application/json", headers=bearer(secret))


def events(row: Compile) -> list[str]:
    with tenant_scope(row.tenant_id):
        return list(CompileEvent.objects.filter(compile=row).order_by("seq").values_list("type", flat=True))


def hints(row: Compile) -> int:
    return Outbox.objects.filter(ids__compile_id=str(row.id)).count()


def test_a_queued_compile_is_canceled_at_once(client, tenant, secret):
    row = make_compile(tenant)
    answer = post(client, secret, row, "cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "canceled")
    assert answer.json()["ended_at"] is not None
    assert events(row) == ["compile.status", "compile.status", "compile.canceled"]


def test_a_running_compile_is_told_to_stop_and_says_so(client, tenant, secret):
    row = make_compile(tenant)
    run = hold(row)
    change(row, status=CompileStatus.RUNNING)
    before = hints(row)
    answer = post(client, secret, row, "cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "canceling")
    assert hints(row) == before + 1
    assert leases.heartbeat(run.lease), "the holder hears of it at its next heartbeat"


@pytest.mark.parametrize("status", list(CompileStatus))
def test_what_cancel_does_in_each_status(client, tenant, secret, status):
    row = make_compile(tenant)
    change(row, status=status)
    n_events, n_hints = len(events(row)), hints(row)
    answer = post(client, secret, row, "cancel")
    if status in (CompileStatus.CANCELING, CompileStatus.CANCELED):
        assert (answer.status_code, answer.json()["status"]) == (202, status), "asking twice is asking once"
        assert (len(events(row)), hints(row)) == (n_events, n_hints)
    elif status in TERMINAL:
        assert (answer.status_code, answer.json()["code"]) == (409, "compile_ended")
        assert fresh(row).status == status
    else:
        assert answer.status_code == 202
        assert answer.json()["status"] in MOVES[status]


@pytest.mark.parametrize("status", list(CompileStatus))
def test_what_resume_does_in_each_status(client, tenant, secret, status):
    row = make_compile(tenant)
    change(row, status=status, failure_code="x", failure_message="y", failed_step="slicing")
    answer = post(client, secret, row, "resume")
    if status in RESUMABLE:
        assert (answer.status_code, answer.json()["status"]) == (202, "queued")
        assert answer.json()["failure"] is None
    else:
        assert (answer.status_code, answer.json()["code"]) == (409, "compile_not_resumable")
        assert fresh(row).status == status


def test_resuming_keeps_what_is_done_and_starts_the_rest_anew(client, tenant, secret):
    row = make_compile(tenant)
    straggler = hold(row)
    with tenant_scope(tenant.id):
        steps = StepRun.objects.filter(compile=row).order_by("position")
        done, failed = steps[0], steps[1]
        StepRun.objects.filter(id=done.id).update(status=StepStatus.SUCCEEDED)
        StepRun.objects.filter(id=failed.id).update(status=StepStatus.FAILED, runner_job_id=row.id)
    change(row, status=CompileStatus.FAILED, spent_microusd=1000, failure_code="x")
    assert post(client, secret, row, "resume").status_code == 202
    assert (fresh(done).status, fresh(failed).status) == (StepStatus.SUCCEEDED, StepStatus.PENDING)
    assert failed.runner_job_id is None
    assert fresh(row).spent_microusd == 1000
    lease = CompileLease.objects.get(compile_id=row.id)
    assert (lease.lease_until, lease.attempts, lease.cancel_requested) == (None, 0, False)
    with pytest.raises(leases.LeaseLost):
        leases.heartbeat(straggler.lease)
    assert leases.claim(row.id, owner="next") is not None


def test_a_resume_may_bring_a_larger_budget_and_never_one_below_what_is_spent(client, tenant, secret):
    row = make_compile(tenant)
    change(row, status=CompileStatus.FAILED, spent_microusd=400_000)
    refused = post(client, secret, row, "resume", {"budget_microusd": 399_999})
    assert (refused.status_code, refused.json()["code"]) == (409, "budget_below_spent")
    answer = post(client, secret, row, "resume", {"budget_microusd": 2_000_000})
    assert (answer.status_code, answer.json()["budget_microusd"]) == (202, 2_000_000)


@pytest.mark.parametrize("body", [{"budget_usd": 5}, {"budget_microusd": 0}, {"budget_microusd": "lots"}, [1]])
def test_a_resume_that_makes_no_sense_is_a_400(client, tenant, secret, body):
    row = make_compile(tenant)
    change(row, status=CompileStatus.FAILED)
    assert post(client, secret, row, "resume", body).status_code == 400
    assert fresh(row).status == CompileStatus.FAILED


@pytest.mark.parametrize("verb", ["cancel", "resume"])
def test_another_tenants_compile_is_not_there(client, tenant, verb):
    row = make_compile(tenant)
    change(row, status=CompileStatus.FAILED)
    answer = post(client, make_api_key(make_tenant()), row, verb)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert fresh(row).status == CompileStatus.FAILED


@pytest.mark.parametrize("verb", ["cancel", "resume"])
def test_reading_is_not_enough_to_cancel_or_resume(client, tenant, verb):
    reader = make_api_key(tenant, scopes=["compiles:read"])
    assert post(client, reader, make_compile(tenant), verb).status_code == 403


def test_a_cancel_that_is_sent_again_under_its_key_is_replayed(client, tenant, secret):
    row = make_compile(tenant)
    address = f"/v1/compiles/{public_id(row)}/cancel"
    first, again = (client.post(address, headers=bearer(secret) | {"Idempotency-Key": "stop"}) for _ in range(2))
    assert first.json() == again.json()
    assert again["Idempotent-Replayed"] == "true"
