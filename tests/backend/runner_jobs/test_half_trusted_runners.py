"""A runner is half trusted: whatever it says ends its job one way or the other, and harms nobody else's."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from backend.blobs import put_blob
from backend.compiles.models import Compile, CompileEvent
from backend.domain.jobs.runner_jobs import Claim, RunnerJobKind
from backend.domain.lifecycle import StepName
from backend.runner_jobs import leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import make_compile
from tests.factories import bearer, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")
PROGRESS = {"step": 1, "n_steps": 2, "loss": 0.5, "eta_s": 1.0, "checkpoint_sha256": None, "note": "epoch 1"}


@pytest.fixture
def row(committed_db: None) -> Compile:
    RunnerJob.objects.all().delete()
    return make_compile(make_tenant())


def queue(row: Compile, kind: RunnerJobKind = RunnerJobKind.DISTILL) -> RunnerJob:
    with tenant_scope(row.tenant_id):
        work = Offer(kind=kind, payload={"base_model": "tiny"}, inputs=())
        return leases.offer(row.tenant_id, work, compile_id=row.id, step=StepName.DISTILLATION)


def post(path: str, token: str, body: str) -> Any:
    return Client().post(f"/internal/runner/{path}", body, content_type="application/json", headers=bearer(token))


def claimed() -> Claim:
    claim = leases.claim("r1", [RunnerJobKind.DISTILL])
    assert claim is not None
    return claim


def beat(claim: Claim, **changes: Any) -> Any:
    return post(f"jobs/{claim.job_id}/heartbeat", claim.token, json.dumps(PROGRESS | changes))


def shown(row: Compile) -> list[dict[str, Any]]:
    with tenant_scope(row.tenant_id):
        return [e.data for e in CompileEvent.objects.filter(compile=row, type="step.progress").order_by("seq")]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_no_number_keeps_the_lease_and_is_left_out(row, bad):
    queue(row)
    assert beat(claimed(), loss=bad, eta_s=bad).status_code == 200
    (event,) = shown(row)
    assert not {"loss", "eta_s"} & event.keys()


@pytest.mark.parametrize("note", ["a\x00b", "half \ud800 a pair", "x" * 5000])
def test_a_note_that_postgres_cannot_keep_is_mended(row, note):
    queue(row)
    assert beat(claimed(), note=note).status_code == 200
    (event,) = shown(row)
    assert len(event["message"]) <= 200
    assert "\x00" not in event["message"]


@pytest.mark.parametrize(
    "changes",
    [{"step": 2**40}, {"step": -1}, {"n_steps": "3"}, {"checkpoint_sha256": 7}, {"step": None}, {"loss": "low"}],
)
def test_progress_that_cannot_be_is_refused_as_such(row, changes):
    queue(row)
    assert beat(claimed(), **changes).status_code == 400


def test_a_failure_is_kept_whatever_its_words(row):
    job = queue(row)
    claim = claimed()
    body = {"ok": False, "code": "x\x00" * 100, "message": "\x00\ud800" * 3000, "retryable": False}
    assert post(f"jobs/{claim.job_id}/report", claim.token, json.dumps(body)).status_code == 204
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.FAILED


def test_a_runner_of_any_name_and_patience_gets_its_job(row):
    queue(row)
    body = '{"runner": "a\\u0000b", "kinds": ["distill"], "wait_s": NaN}'
    assert post("claim", django_settings.KOLM_RUNNER_TOKEN, body).status_code == 200
    assert post("claim", django_settings.KOLM_RUNNER_TOKEN, body).status_code == 204, "NaN is no wait without end"


@pytest.mark.parametrize("digest", ["0" * 64, "no digest", "../../../etc/passwd"])
def test_a_checkpoint_that_was_never_handed_over_is_not_gone_on_from(row, digest):
    job = queue(row)
    claim = claimed()
    real = put_blob(row.tenant_id, b"epoch 1")
    assert beat(claim, checkpoint_sha256=real).status_code == 200
    beat(claim, checkpoint_sha256=digest)
    job.refresh_from_db()
    assert job.checkpoint_sha256 == real


def test_a_job_whose_checkpoint_is_gone_starts_afresh(row):
    job = queue(row)
    RunnerJob.objects.filter(id=job.id).update(checkpoint_sha256="0" * 64)
    assert claimed().checkpoint_sha256 is None


def test_a_job_handed_back_while_it_is_canceled_is_never_handed_out_again(row):
    """The cancel's transaction waits for the runner's, or the runner's for the cancel's: either way it ends."""
    for _ in range(8):
        job = queue(row)
        claim = claimed()
        key = (job.id, claim.token)

        def hand_back(key: Any = key) -> None:
            try:
                leases.report_failure(*key, code="runner_stopping", message="", is_retryable=True)
            finally:
                connection.close()

        def cancel(job: Any = job) -> None:
            try:
                with transaction.atomic():
                    leases.cancel(job.id)
            finally:
                connection.close()

        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(hand_back), threads.submit(cancel)]:
                done.result()
        job.refresh_from_db()
        assert job.status == RunnerJobStatus.CANCELED
        assert leases.claim("r2", [RunnerJobKind.DISTILL]) is None


def test_a_cancel_that_waited_for_the_runner_to_hand_back_still_cancels(row):
    job = queue(row)
    claim = claimed()

    def cancel() -> None:
        try:
            with transaction.atomic():
                leases.cancel(job.id)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            leases.report_failure(job.id, claim.token, code="runner_stopping", message="", is_retryable=True)
            waiting = threads.submit(cancel)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
        waiting.result(timeout=5)
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.CANCELED


def test_an_answer_that_nobody_waits_for_any_more_is_not_worked_on(row):
    job = queue(row, RunnerJobKind.INFER)
    leases.expire_leases()
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.QUEUED
    with connection.cursor() as cursor:
        old = "UPDATE runner_jobs_runnerjob SET created_at = now() - interval '2 minutes' WHERE id = %s"
        cursor.execute(old, [job.id])
    leases.expire_leases()
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.CANCELED


def test_a_failure_that_has_to_pass_gives_the_job_back_after_a_pause(row):
    """Before, four claims within 24 seconds ended a compile that a hub was away for."""
    job = queue(row)
    later = timezone.now() - timedelta(minutes=30)
    for minutes in (1, 4, 16):
        claim = claimed()
        leases.report_failure(job.id, claim.token, code="hub_unavailable", message="", is_retryable=True)
        assert leases.claim("r1", [RunnerJobKind.DISTILL]) is None
        pause = RunnerJob.objects.get(id=job.id).not_before - timezone.now()
        assert timedelta(minutes=minutes, seconds=-30) < pause <= timedelta(minutes=minutes)
        RunnerJob.objects.filter(id=job.id).update(not_before=later)
    claim = claimed()
    leases.report_failure(job.id, claim.token, code="hub_unavailable", message="", is_retryable=True)
    job.refresh_from_db()
    assert (job.status, job.error_code) == (RunnerJobStatus.FAILED, "hub_unavailable")


def test_a_job_waits_for_the_runner_that_is_full_and_for_no_other(row):
    job = queue(row)
    leases.report_failure(job.id, claimed().token, code="base_cache_full", message="", is_retryable=True)
    assert leases.claim("r1", [RunnerJobKind.DISTILL]) is None
    assert leases.claim("r2", [RunnerJobKind.DISTILL]).attempt == 2


def test_a_failure_of_another_kind_gives_the_job_back_at_once(row):
    job = queue(row)
    leases.report_failure(job.id, claimed().token, code="out_of_memory", message="", is_retryable=True)
    assert claimed().attempt == 2
