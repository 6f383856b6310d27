"""A runner that brings back nonsense fails the compile once, by its code; a resume gives the work to a runner anew."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from backend.blobs import put_blob, put_jsonl
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, CompileEvent, StepRun
from backend.domain.jobs.fair_turns import PREEMPTED
from backend.domain.jobs.runner_jobs import Progress, RunnerJobKind
from backend.domain.lifecycle import STEPS, CompileStatus, StepName, StepStatus
from backend.domain.spec.passes import passes
from backend.runner_jobs import leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.backend.domain.jobs.test_runner_results import DISTILLED, EVALUATED
from tests.compile_factories import LABELS, change, fresh, make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import check_money, told_apart
from workers import pipeline

pytestmark = pytest.mark.usefixtures("committed_db")
NAN = float("nan")
HELDOUT = told_apart(2)


@pytest.fixture
def row(committed_db: None) -> Compile:
    """A compile whose pairs are there: what comes next is a runner's."""
    RunnerJob.objects.all().delete()
    row = make_compile(make_tenant())
    dataset = [{"input": f"text {i}", "label": LABELS[i % 2], "weight": 1.0} for i in range(12)]
    done = {
        StepName.SLICING: {"gold_heldout": put_jsonl(row.tenant_id, HELDOUT)},
        StepName.LABELING: {"dataset": put_jsonl(row.tenant_id, dataset)},
    }
    change(row, status=CompileStatus.RUNNING)
    with tenant_scope(row.tenant_id):
        for name in STEPS[:5]:
            output = {"digests": done.get(name, {}), "facts": {}}
            StepRun.objects.filter(compile=row, name=name).update(status=StepStatus.SUCCEEDED, output=output)
    return row


def advance(row: Compile) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE compiles_compilelease SET due_at = now() WHERE compile_id = %s", [row.id])
    pipeline.advance(row.id)


def bring(row: Compile, kind: RunnerJobKind, result: dict[str, Any]) -> None:
    advance(row)
    claim = leases.claim("r1", [kind])
    assert claim is not None
    job = RunnerJob.objects.get(compile_id=row.id, status="leased")
    leases.report_success(job.id, claim.token, result)
    advance(row)


def distilled(row: Compile, **changes: Any) -> dict[str, Any]:
    return DISTILLED | {"adapter_sha256": put_blob(row.tenant_id, b"adapter")} | changes


def n_retries(row: Compile) -> int:
    with tenant_scope(row.tenant_id):
        return CompileEvent.objects.filter(compile=row, type="step.retrying").count()


@pytest.mark.parametrize(
    "changes",
    [{"temperature": NAN}, {"training_log": [{"loss": NAN}]}, {"active": {"a": "\x00"}}, {"adapter_sha256": "0" * 64}],
)
def test_a_distillation_that_cannot_be_fails_the_compile_at_once_and_can_be_resumed(row, changes):
    bring(row, RunnerJobKind.DISTILL, distilled(row) | changes)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "runner_bad_result")
    assert (row.failed_step, n_retries(row)) == (StepName.DISTILLATION, 0)
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    bring(row, RunnerJobKind.DISTILL, distilled(row))
    assert fresh(row).status == CompileStatus.RUNNING
    check_money(row)


@pytest.mark.parametrize(
    "changes",
    [{"predictions": ["refund"]}, {"predictions": ["refund", "?"]}, {"confidences": [NAN, NAN]}, {"latency_us": []}],
)
def test_an_evaluation_that_cannot_be_fails_the_compile_at_once(row, changes):
    bring(row, RunnerJobKind.DISTILL, distilled(row))
    bring(row, RunnerJobKind.EVALUATE, EVALUATED | changes)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "runner_bad_result")
    assert n_retries(row) == 0
    check_money(row)


def test_a_runner_is_paid_for_no_more_time_than_it_had_the_job(row):
    bring(row, RunnerJobKind.DISTILL, distilled(row, runner_ms=999_000_000))
    with tenant_scope(row.tenant_id):
        step = StepRun.objects.get(compile=row, name=StepName.DISTILLATION)
    assert step.status == StepStatus.SUCCEEDED
    assert 0 < step.spent_microusd < 10_000, "seconds, not the eleven days it says"
    check_money(row)


def facts_of(row: Compile, step: StepName) -> dict[str, int]:
    """What was charged for a step's runners, by sku."""
    with tenant_scope(row.tenant_id):
        facts = UsageFact.objects.filter(compile_id=row.id, step=step, billing="charge", sku__startswith="runner.")
        return dict(facts.values_list("sku", "quantity"))


def test_a_job_is_billed_by_the_work_that_its_runner_counted(row):
    """However long it took: a busy machine makes nothing dearer."""
    bring(row, RunnerJobKind.DISTILL, distilled(row, n_tokens=700, runner_ms=999_000_000))
    bring(row, RunnerJobKind.EVALUATE, EVALUATED | {"n_tokens": 11})
    assert facts_of(row, StepName.DISTILLATION) == {"runner.encoder_job": 1, "runner.encoder_train_token": 700}
    assert facts_of(row, StepName.EVALUATION) == {"runner.encoder_job": 1, "runner.encoder_read_token": 11}
    check_money(row)


def test_a_runner_cannot_count_more_than_its_data_can_amount_to(row):
    """Twelve pairs of 6 or 7 bytes, each with 32 tokens of room beside it, seven epochs."""
    bring(row, RunnerJobKind.DISTILL, distilled(row, n_tokens=10**12))
    n_bytes = sum(len(f"text {i}") for i in range(12))
    assert facts_of(row, StepName.DISTILLATION)["runner.encoder_train_token"] == passes(12, 16) * (n_bytes + 12 * 32)
    check_money(row)


def test_a_runner_that_counts_nothing_is_billed_by_seconds_but_for_no_more_than_the_work_costs(row):
    bring(row, RunnerJobKind.DISTILL, distilled(row, runner_ms=999_000_000))
    RunnerJob.objects.filter(compile_id=row.id, kind=RunnerJobKind.DISTILL).update(
        started_at=F("ended_at") - timedelta(days=1)
    )
    seconds = facts_of(row, StepName.DISTILLATION)
    assert list(seconds) == ["runner.second"]
    assert 1 <= seconds["runner.second"] <= 12
    check_money(row)


def test_a_compile_keeps_the_price_book_that_it_began_with(row):
    change(row, estimate=row.estimate | {"price_version": "2026-11-22"})
    bring(row, RunnerJobKind.DISTILL, distilled(row, n_tokens=700))
    assert facts_of(row, StepName.DISTILLATION) == {"runner.second": 1}
    with tenant_scope(row.tenant_id):
        versions = set(UsageFact.objects.filter(compile_id=row.id).values_list("price_version", flat=True))
    assert versions == {"2026-11-22"}
    check_money(row)


def test_a_training_that_gave_way_in_between_is_billed_as_one_that_did_not(row):
    advance(row)
    claim = leases.claim("r1", [RunnerJobKind.DISTILL])
    assert claim is not None
    job = RunnerJob.objects.get(compile_id=row.id)
    checkpoint = put_blob(row.tenant_id, b"half of it")
    half = {"step": 50, "n_steps": 100, "loss": 0.5, "eta_s": 900.0, "checkpoint_sha256": checkpoint, "note": "train"}
    leases.heartbeat(job.id, claim.token, Progress.from_json(half))
    RunnerJob.objects.filter(id=job.id).update(started_at=timezone.now() - timedelta(minutes=15))
    other = make_tenant("who has a minute's work")
    with tenant_scope(other.id):
        minute = leases.offer(other.id, Offer(kind=RunnerJobKind.DISTILL, payload={"base_model": "tiny"}, inputs=()))
    RunnerJob.objects.filter(id=minute.id).update(created_at=timezone.now() - timedelta(seconds=30))
    assert leases.heartbeat(job.id, claim.token, Progress.from_json(half)).preempt
    leases.report_failure(job.id, claim.token, code=PREEMPTED, message="", is_retryable=True)
    between = leases.claim("r1", [RunnerJobKind.DISTILL])
    assert between is not None
    assert RunnerJob.objects.get(status="leased").id == minute.id
    leases.report_success(minute.id, between.token, {"n": 1})
    bring(row, RunnerJobKind.DISTILL, distilled(row, n_tokens=700))
    assert facts_of(row, StepName.DISTILLATION) == {"runner.encoder_job": 1, "runner.encoder_train_token": 700}
    assert fresh(row).waste_microusd == 0
    check_money(row)
