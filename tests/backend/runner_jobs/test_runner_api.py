"""The lease API as a runner meets it: one job to one runner, and its token opens that job alone."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.db import connection, transaction
from django.test import Client

from backend.blobs import get_blob, put_blob
from backend.compiles import leases as compile_leases
from backend.compiles.models import Compile, CompileEvent, CompileLease, StepRun
from backend.domain.ids import Prefix, encode_id
from backend.domain.jobs.absence import Absence
from backend.domain.jobs.runner_jobs import Claim, Progress, RunnerJobKind
from backend.domain.lifecycle import StepName
from backend.rest.new_ids import new_id
from backend.runner_jobs import api, leases, own_absence
from backend.runner_jobs.leases import MAX_ATTEMPTS, Offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.compile_factories import fresh, hold, make_compile
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

STEP = StepName.DISTILLATION
NO_PROGRESS = Progress(step=0, n_steps=0, loss=None, eta_s=None, checkpoint_sha256=None, note="")


@pytest.fixture
def row(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """A compile, no job of anybody's in the queue, and a web process that was never away."""
    monkeypatch.setattr(own_absence, "absence", Absence(break_s=1e9))
    RunnerJob.objects.all().delete()
    return make_compile(make_tenant())


def queue(row: Compile, *, inputs: tuple[str, ...] = (), kind: RunnerJobKind = RunnerJobKind.DISTILL) -> RunnerJob:
    with tenant_scope(row.tenant_id):
        work = Offer(kind=kind, payload={"base_model": "tiny"}, inputs=inputs)
        return leases.offer(row.tenant_id, work, compile_id=row.id, step=STEP)


def post(path: str, token: str, body: Any) -> Any:
    data = body if isinstance(body, str) else json.dumps(body)
    return Client().post(f"/internal/runner/{path}", data, content_type="application/json", headers=bearer(token))


def ask(*kinds: str, runner: str = "r1", wait_s: float = 0, token: str | None = None) -> Any:
    body = {"runner": runner, "kinds": list(kinds or ("distill",)), "wait_s": wait_s}
    return post("claim", django_settings.KOLM_RUNNER_TOKEN if token is None else token, body)


def claimed(*kinds: str, runner: str = "r1") -> Claim:
    answer = ask(*kinds, runner=runner)
    assert answer.status_code == 200
    return Claim.from_json(answer.json())


def beat(claim: Claim, **changes: Any) -> Any:
    progress = {**NO_PROGRESS.to_json(), **changes}
    return post(f"jobs/{claim.job_id}/heartbeat", claim.token, progress)


def report(claim: Claim, **body: Any) -> Any:
    return post(f"jobs/{claim.job_id}/report", claim.token, body or {"ok": True, "result": {"n": 1}})


def blob(claim: Claim, sha256: str, data: bytes | None = None, *, token: str | None = None) -> Any:
    path, headers = f"/internal/runner/jobs/{claim.job_id}/blobs/{sha256}", bearer(token or claim.token)
    if data is None:
        return Client().get(path, headers=headers)
    return Client().put(path, data, content_type="application/octet-stream", headers=headers)


def lapse(job: RunnerJob) -> None:
    with connection.cursor() as cursor:
        past = "UPDATE runner_jobs_runnerjob SET lease_until = now() - interval '1 second' WHERE id = %s"
        cursor.execute(past, [job.id])


def events(row: Compile, type: str) -> list[dict[str, Any]]:
    with tenant_scope(row.tenant_id):
        return [e.data for e in CompileEvent.objects.filter(compile=row, type=type).order_by("seq")]


def is_due(row: Compile) -> bool:
    lease = CompileLease.objects.get(compile_id=row.id)
    return lease.due_at is not None and lease.due_at <= lease.due_at.now(lease.due_at.tzinfo)


def wait_for_runner(row: Compile) -> None:
    """The compile as it is while a runner works: held by nobody and not due."""
    run = hold(row)
    with run.transaction():
        compile_leases.release(run.lease, due_in_s=60)
    assert not is_due(row)


def test_a_claim_carries_the_work_and_leases_it(row):
    job = queue(row)
    claim = claimed()
    assert (claim.job_id, claim.kind, claim.attempt) == (encode_id(Prefix.RUNNER_JOB, job.id), "distill", 1)
    assert claim.payload == {"base_model": "tiny"}
    job.refresh_from_db()
    assert (job.status, job.runner) == (RunnerJobStatus.LEASED, "r1")
    assert claim.token not in str(job.__dict__), "only its hash is stored"


def test_a_runner_gets_the_oldest_job_of_its_kinds_and_nothing_else(row):
    first, _ = queue(row), queue(row)
    assert ask("infer", "evaluate").status_code == 204
    assert claimed().job_id == encode_id(Prefix.RUNNER_JOB, first.id)


def test_eight_runners_that_ask_at_once_never_share_a_job(row):
    ids = {encode_id(Prefix.RUNNER_JOB, queue(row).id) for _ in range(3)}
    together = threading.Barrier(8)

    def ask_as(i: int) -> Any:
        try:
            together.wait()
            return leases.claim(f"r{i}", [RunnerJobKind.DISTILL])
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        got = [claim for claim in threads.map(ask_as, range(8)) if claim is not None]
    assert sorted(claim.job_id for claim in got) == sorted(ids)
    assert len({claim.token for claim in got}) == 3


def test_a_runner_that_waits_is_woken_by_the_offer(row, monkeypatch):
    monkeypatch.setattr(api, "LOOK_AGAIN_S", 60)

    def offer_soon() -> None:
        try:
            time.sleep(0.3)
            queue(row)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        soon = threads.submit(offer_soon)
        assert ask(wait_s=30).status_code == 200
        soon.result()


@pytest.mark.parametrize("token", ["", "wrong", "é" * 40, "x" * 10_000])
def test_without_the_runner_token_nothing_is_claimed(row, token):
    job = queue(row)
    answer = ask(token=token)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert ask(token=make_api_key(make_tenant())).status_code == 401
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.QUEUED


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{", '{"kinds": ["distill"]}', '{"runner": "r", "kinds": ["dance"]}', '{"runner": "r", "kinds": 7}'],
)
def test_a_claim_that_makes_no_sense_is_a_400(row, body):
    assert post("claim", django_settings.KOLM_RUNNER_TOKEN, body).status_code == 400


def test_a_token_opens_its_own_job_and_no_other(row):
    queue(row)
    other = make_compile(make_tenant())
    queue(other)
    mine, theirs = claimed(), claimed(runner="r2")
    stolen = Claim.from_json({**theirs.to_json(), "token": mine.token})
    runner = Claim.from_json({**theirs.to_json(), "token": django_settings.KOLM_RUNNER_TOKEN})
    nowhere = Claim.from_json({**mine.to_json(), "job_id": new_id(Prefix.RUNNER_JOB)})
    for claim in (stolen, runner, nowhere):
        for answer in (beat(claim), report(claim), blob(claim, "0" * 64), blob(claim, "0" * 64, b"x")):
            assert (answer.status_code, answer.json()["code"]) == (410, "lease_lost")
    assert beat(theirs).status_code == 200
    assert beat(Claim.from_json({**mine.to_json(), "job_id": "job_x"})).status_code == 404


def test_a_job_reads_its_inputs_and_checkpoint_and_no_other_blob(row):
    given, secret = put_blob(row.tenant_id, b"dataset"), put_blob(row.tenant_id, b"the tenant's other data")
    foreign = put_blob(make_tenant().id, b"of another tenant")
    queue(row, inputs=(given,))
    claim = claimed()
    assert blob(claim, given).content == b"dataset"
    for digest in (secret, foreign, "0" * 64, "..", given.upper(), given[:-1]):
        assert blob(claim, digest).status_code == 404
    written = hashlib.sha256(b"checkpoint").hexdigest()
    assert blob(claim, written, b"checkpoint").status_code == 201
    assert blob(claim, written).status_code == 404, "what it wrote is not yet its checkpoint"
    assert beat(claim, checkpoint_sha256=written).status_code == 200
    assert blob(claim, written).content == b"checkpoint"


def test_what_a_runner_writes_must_have_the_digest_in_its_address(row):
    queue(row)
    claim = claimed()
    answer = blob(claim, "0" * 64, b"adapter")
    assert (answer.status_code, answer.json()["code"]) == (422, "digest_mismatch")
    digest = hashlib.sha256(b"adapter").hexdigest()
    assert [blob(claim, digest, b"adapter").status_code for _ in range(2)] == [201, 201]
    assert get_blob(row.tenant_id, digest) == b"adapter"
    path = f"/internal/runner/jobs/{claim.job_id}/blobs/{digest}"
    assert Client().delete(path, headers=bearer(claim.token)).status_code == 405


def test_a_heartbeat_prolongs_the_lease_and_shows_the_progress(row):
    job = queue(row)
    claim = claimed()
    lapse(job)
    answer = beat(claim, step=3, n_steps=10, loss=0.5, eta_s=12.0, note="epoch 1")
    lease_s = float(django_settings.KOLM_RUNNER_LEASE_S)
    assert answer.json() == {"cancel": False, "preempt": False, "lease_s": lease_s}
    assert leases.expire_leases() == 0
    (shown,) = events(row, "step.progress")
    assert shown == {"step": STEP, "done": 3, "total": 10, "message": "epoch 1", "loss": 0.5, "eta_s": 12.0}
    with tenant_scope(row.tenant_id):
        step = StepRun.objects.get(compile=row, name=STEP)
    assert (step.done, step.total, step.message) == (3, 10, "epoch 1")
    assert beat(claim).status_code == 200
    assert len(events(row, "step.progress")) == 1, "a heartbeat without progress is no event"


@pytest.mark.parametrize(
    "body", [{}, {"step": 1}, {**NO_PROGRESS.to_json(), "extra": 1}, {**NO_PROGRESS.to_json(), "n_steps": "x"}]
)
def test_a_heartbeat_that_makes_no_sense_is_a_400(row, body):
    queue(row)
    claim = claimed()
    assert post(f"jobs/{claim.job_id}/heartbeat", claim.token, body).status_code == 400


def test_a_report_keeps_the_result_wakes_the_compile_and_closes_the_job(row):
    wait_for_runner(row)
    job = queue(row)
    claim = claimed()
    assert report(claim, ok=True, result={"runner_ms": 7}).status_code == 204
    job.refresh_from_db()
    assert (job.status, leases.result_of(job)) == (RunnerJobStatus.SUCCEEDED, {"runner_ms": 7})
    assert is_due(row)
    for answer in (report(claim), beat(claim), blob(claim, "0" * 64)):
        assert answer.status_code == 410, "a token that reported is spent"


@pytest.mark.parametrize("body", [{}, {"ok": True}, {"ok": True, "result": 7}, {"ok": False, "code": "x"}])
def test_a_report_that_makes_no_sense_is_a_400_and_changes_nothing(row, body):
    job = queue(row)
    claim = claimed()
    assert post(f"jobs/{claim.job_id}/report", claim.token, body).status_code == 400
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.LEASED


def test_a_failure_that_may_pass_is_tried_four_times(row):
    wait_for_runner(row)
    job = queue(row)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        claim = claimed()
        assert claim.attempt == attempt
        assert not is_due(row)
        assert report(claim, ok=False, code="out_of_memory", message="no room", retryable=True).status_code == 204
    assert ask().status_code == 204
    job.refresh_from_db()
    assert (job.status, job.error_code, leases.error_of(job)) == (RunnerJobStatus.FAILED, "out_of_memory", "no room")
    assert is_due(row)


def test_a_failure_for_good_ends_the_job_at_once(row):
    wait_for_runner(row)
    job = queue(row)
    report(claimed(), ok=False, code="bad_dataset", message="no rows", retryable=False)
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.FAILED
    assert is_due(row)


def test_a_runner_that_falls_silent_loses_the_job_to_another_with_its_checkpoint(row):
    job = queue(row)
    first = claimed(runner="first")
    checkpoint = put_blob(row.tenant_id, b"epoch 3")
    beat(first, checkpoint_sha256=checkpoint)
    beat(first)
    lapse(job)
    assert leases.expire_leases() == 1
    assert leases.expire_leases() == 0
    (warning,) = events(row, "warning")
    assert (warning["code"], warning["step"]) == ("runner_lost", STEP)
    assert "first" in warning["message"]
    second = claimed(runner="second")
    assert (second.attempt, second.checkpoint_sha256) == (2, checkpoint)
    for answer in (beat(first), report(first), blob(first, checkpoint)):
        assert answer.status_code == 410
    assert beat(second).status_code == 200


def test_a_job_whose_runners_all_fall_silent_fails_after_the_fourth(row):
    wait_for_runner(row)
    job = queue(row)
    for _ in range(MAX_ATTEMPTS):
        assert not is_due(row)
        claimed()
        lapse(job)
        assert leases.expire_leases() == 1
    assert ask().status_code == 204
    job.refresh_from_db()
    assert (job.status, job.error_code, job.attempts) == (RunnerJobStatus.FAILED, "runner_lost", MAX_ATTEMPTS)
    assert is_due(row)
    assert ask().status_code == 204
    assert "no attempt left" in events(row, "warning")[-1]["message"]


def test_a_runner_that_was_silent_goes_on_while_nobody_has_taken_its_job(row):
    """As after an outage of ours: no attempt is used up, and what is paid is never booked as lost as well."""
    job = queue(row)
    claim = claimed()
    for n in range(MAX_ATTEMPTS + 1):
        lapse(job)
        assert leases.expire_leases() == 1
        if n % 2:
            assert beat(claim, step=n, n_steps=9).status_code == 200
        else:
            digest = hashlib.sha256(b"x").hexdigest()
            assert blob(claim, digest, b"x").status_code == 201
        job.refresh_from_db()
        assert (job.status, job.attempts_in_vain, job.attempts) == (RunnerJobStatus.LEASED, 1, n + 2)
        assert ask().status_code == 204, "it has the job again"
    lapse(job)
    leases.expire_leases()
    assert report(claim).status_code == 204, "a report brings the lease back as well"
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.SUCCEEDED
    with tenant_scope(row.tenant_id):
        lost = list(UsageFact.objects.filter(compile_id=row.id).values_list("source_key", flat=True))
    assert sorted(lost) == [f"runner:{job.id}:lost:{n}" for n in range(1, MAX_ATTEMPTS + 3)]
    assert job.started_at > job.ended_at - timedelta(seconds=5), "paid from its return on"


def test_a_runner_that_comes_back_after_another_took_its_job_has_lost_it(row):
    job = queue(row)
    first = claimed(runner="first")
    lapse(job)
    leases.expire_leases()
    second = claimed(runner="second")
    assert beat(first).status_code == 410
    lapse(job)
    leases.expire_leases()
    assert beat(first).status_code == 410, "also while the job is queued again: it is the second one's to bring back"
    assert beat(second).status_code == 200


def test_a_canceled_job_does_not_come_back(row):
    job = queue(row)
    claim = claimed()
    lapse(job)
    leases.expire_leases()
    leases.cancel(job.id)
    assert beat(claim).status_code == 410


def test_a_web_process_that_was_away_gives_no_runners_job_to_another_at_once(row, monkeypatch):
    job = queue(row)
    first = claimed(runner="first")
    lapse(job)
    leases.expire_leases()
    own_absence.note_absence()
    assert ask(runner="second").status_code == 204
    fresh_job = queue(row)
    assert claimed(runner="second").job_id == encode_id(Prefix.RUNNER_JOB, fresh_job.id), "new work is no one's to lose"
    assert beat(first).status_code == 200
    monkeypatch.setattr(own_absence, "absence", Absence(break_s=1e9))
    lapse(job)
    leases.expire_leases()
    assert claimed(runner="second").attempt == 3


@pytest.mark.nightly
def test_a_lock_that_is_held_for_long_keeps_no_other_job_from_a_new_runner(row):
    """A heartbeat that waits for it in vain is no outage of ours."""
    other = make_compile(make_tenant())
    queue(other)
    claim = claimed()
    with held_lock(other.id):
        path, data = f"/internal/runner/jobs/{claim.job_id}/heartbeat", json.dumps(NO_PROGRESS.to_json())
        headers = bearer(claim.token)
        client = Client(raise_request_exception=False)
        assert client.post(path, data, content_type="application/json", headers=headers).status_code == 503
    assert own_absence.may_take_over()


@contextmanager
def held_lock(compile_id: UUID) -> Iterator[None]:
    """The compile's lease row, locked by somebody else."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                compile_leases.lock(compile_id)
                held.set()
                release.wait(14)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    try:
        yield
    finally:
        release.set()
        thread.join()


def test_an_exhausted_job_that_no_runner_asks_for_ends_when_an_outage_would_be_over(row, settings):
    wait_for_runner(row)
    job = queue(row)
    for _ in range(MAX_ATTEMPTS):
        claimed()
        lapse(job)
        leases.expire_leases()
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.QUEUED
    settings.KOLM_OUTAGE_S = 0
    leases.expire_leases()
    job.refresh_from_db()
    assert (job.status, job.error_code) == (RunnerJobStatus.FAILED, "runner_lost")
    assert is_due(row)


def test_nothing_is_handed_out_while_its_payload_cannot_be_read(row, settings, tmp_path):
    job = queue(row)
    there, settings.KOLM_BLOB_DIR = settings.KOLM_BLOB_DIR, tmp_path / "away"
    for _ in range(MAX_ATTEMPTS + 1):
        answer = ask()
        assert (answer.status_code, answer.json()["code"]) == (503, "blob_store_unavailable")
    settings.KOLM_BLOB_DIR = there
    claim = claimed()
    assert claim.attempt == 1
    settings.KOLM_BLOB_DIR = tmp_path / "away"
    assert beat(claim, step=3, n_steps=9, checkpoint_sha256="0" * 64).status_code == 200, "the lease needs no disk"
    assert report(claim).status_code == 503
    settings.KOLM_BLOB_DIR = there
    assert report(claim).status_code == 204
    job.refresh_from_db()
    assert (job.status, job.attempts) == (RunnerJobStatus.SUCCEEDED, 1)


def test_a_training_that_moves_on_outlives_any_number_of_runners(row):
    job = queue(row)
    for attempt in range(1, MAX_ATTEMPTS + 2):
        claim = claimed()
        assert claim.attempt == attempt
        checkpoint = put_blob(row.tenant_id, f"epoch {attempt}".encode())
        assert beat(claim, step=10 * attempt, n_steps=90, checkpoint_sha256=checkpoint).status_code == 200
        lapse(job)
        assert leases.expire_leases() == 1
    last = claimed()
    assert last.checkpoint_sha256 == checkpoint
    assert report(last).status_code == 204
    job.refresh_from_db()
    assert (job.status, job.attempts) == (RunnerJobStatus.SUCCEEDED, MAX_ATTEMPTS + 2)


@pytest.mark.parametrize("changes", [{}, {"step": 10, "n_steps": 90}])
def test_a_training_that_dies_at_the_same_step_ends_whatever_it_writes_there(row, changes):
    """Other bytes at the same step, or an old checkpoint with a later step, are no progress."""
    job = queue(row)
    first = put_blob(row.tenant_id, b"epoch 1")
    beat(claimed(), step=10, n_steps=90, checkpoint_sha256=first)
    lapse(job)
    leases.expire_leases()
    for attempt in range(MAX_ATTEMPTS):
        again = put_blob(row.tenant_id, f"again {attempt}".encode()) if changes else first
        beat(claimed(), **{"step": 30, "n_steps": 90} | changes, checkpoint_sha256=again)
        lapse(job)
        leases.expire_leases()
    assert ask().status_code == 204
    job.refresh_from_db()
    assert (job.status, job.error_code) == (RunnerJobStatus.FAILED, "runner_lost")


def test_a_checkpoint_that_was_never_handed_over_gives_nothing_back(row):
    job = queue(row)
    for attempt in range(MAX_ATTEMPTS):
        beat(claimed(), step=10 * attempt, n_steps=90, checkpoint_sha256=f"{attempt}" * 64)
        lapse(job)
        leases.expire_leases()
    assert ask().status_code == 204
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.FAILED


def test_a_cancel_reaches_the_runner_by_its_next_heartbeat(row):
    job = queue(row)
    claim = claimed()
    assert beat(claim).json()["cancel"] is False
    leases.cancel(job.id)
    assert beat(claim).json()["cancel"] is True
    assert report(claim, ok=False, code="canceled", message="", retryable=True).status_code == 204
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.CANCELED
    assert ask().status_code == 204


def test_a_canceled_job_that_nobody_took_is_never_handed_out(row):
    job = queue(row)
    leases.cancel(job.id)
    assert ask().status_code == 204
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.CANCELED


def test_a_canceled_job_whose_runner_falls_silent_is_canceled(row):
    job = queue(row)
    claimed()
    leases.cancel(job.id)
    lapse(job)
    leases.expire_leases()
    job.refresh_from_db()
    assert job.status == RunnerJobStatus.CANCELED


def test_a_resumed_compile_goes_on_from_the_checkpoint_of_the_same_work(row):
    queue(row)
    checkpoint = put_blob(row.tenant_id, b"epoch 3")
    beat(claim := claimed(), checkpoint_sha256=checkpoint)
    report(claim, ok=False, code="x", message="", retryable=False)
    queue(row)
    assert claimed().checkpoint_sha256 == checkpoint


def test_a_heartbeat_and_a_worker_that_cancels_the_job_do_not_block_each_other_for_ever(row):
    """Both write the job and the compile: whoever takes the lease's lock first goes first."""
    job = queue(row)
    claim = claimed()
    run = hold(row)

    def beat_meanwhile() -> int:
        try:
            return int(beat(claim, step=1, n_steps=2).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        with run.transaction():
            beating = threads.submit(beat_meanwhile)
            time.sleep(0.4)
            leases.cancel(job.id)
        assert beating.result() == 200
    job.refresh_from_db()
    assert job.cancel_requested
    assert fresh(row).event_seq >= 1
