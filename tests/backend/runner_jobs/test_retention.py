"""What was asked of an artifact is forgotten, and nothing else is."""

from datetime import timedelta

import pytest
from django.utils import timezone

from backend.blobs import has_blob, put_json
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.rest.new_ids import new_uuid7
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.runner_jobs.retention import KEEP_S, forget_infer_jobs
from tests.factories import age_blobs

pytestmark = pytest.mark.usefixtures("committed_db")


def ended(tenant_id, *, age_s, kind=RunnerJobKind.INFER, text="refund please"):
    return RunnerJob.objects.create(
        tenant_id=tenant_id,
        kind=kind,
        status=RunnerJobStatus.SUCCEEDED,
        payload_sha256=put_json(tenant_id, {"inputs": [text]}),
        result_sha256=put_json(tenant_id, {"outputs": [text.upper()]}),
        ended_at=timezone.now() - timedelta(seconds=age_s),
    )


def test_an_old_question_and_its_answer_are_forgotten():
    tenant = new_uuid7()
    job = ended(tenant, age_s=KEEP_S + 60)
    age_blobs(tenant)
    assert forget_infer_jobs() >= 1
    assert not RunnerJob.objects.filter(id=job.id).exists()
    assert not has_blob(tenant, job.payload_sha256)
    assert not has_blob(tenant, job.result_sha256)


def test_a_question_that_was_asked_again_keeps_its_blobs_for_the_newer_job():
    tenant = new_uuid7()
    old, new = ended(tenant, age_s=KEEP_S + 60), ended(tenant, age_s=1)
    forget_infer_jobs()
    assert not RunnerJob.objects.filter(id=old.id).exists()
    assert RunnerJob.objects.filter(id=new.id).exists()
    assert has_blob(tenant, new.payload_sha256)


def test_the_jobs_of_compiles_are_kept():
    job = ended(new_uuid7(), age_s=10 * KEEP_S, kind=RunnerJobKind.DISTILL)
    forget_infer_jobs()
    assert RunnerJob.objects.filter(id=job.id).exists()
