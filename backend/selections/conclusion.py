"""The end of a job becomes the end of its selection: status, report, what it cost. Once, whoever looks first: a reader,
the request that waits, or upkeep."""

import re

from django.utils import timezone

from backend.domain.errors import KolmError
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.jobs.runner_results import select_result
from backend.domain.money.pricing import cost_microusd, price_book
from backend.domain.money.runner_work import costs_of, selecting
from backend.domain.selection.options import Method
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.runner_jobs.retention import ENDED
from backend.selections.models import Selection, SelectionStatus
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from backend.usage.models import Billing

STEP = "select"
TOKEN_SKU = "embedding.token"
UNKNOWN = "run_failed"


def conclude(row: Selection) -> Selection:
    """Bring `row` up to date, in its tenant's transaction, and return it: a job that has ended ends it, one that a
    runner holds becomes its `running_job`."""
    row.running_job = None
    if row.ended_at is not None:
        return row
    job = RunnerJob.objects.get(id=row.runner_job_id)
    if job.status in ENDED:
        locked = Selection.objects.select_for_update().get(tenant_id=row.tenant_id, id=row.id)
        if locked.ended_at is None:
            _end(locked, job)
        row.refresh_from_db()
    elif job.status == RunnerJobStatus.LEASED:
        row.running_job = job
    return row


def conclude_ended_jobs(limit: int = 50) -> int:
    """Conclude the selections of ended jobs that nobody has asked for since; return how many. Upkeep calls this."""
    ended = RunnerJob.objects.filter(kind=RunnerJobKind.SELECT, status__in=ENDED, settled_at=None)
    jobs = list(ended.order_by("ended_at")[:limit])
    for job in jobs:
        with tenant_scope(job.tenant_id):
            row = Selection.objects.filter(tenant_id=job.tenant_id, runner_job_id=job.id).first()
            if row is not None:
                conclude(row)
            RunnerJob.objects.filter(id=job.id, settled_at=None).update(settled_at=timezone.now())
    return len(jobs)


def _end(row: Selection, job: RunnerJob) -> None:
    row.started_at, row.ended_at = job.started_at, job.ended_at or timezone.now()
    match job.status:
        case RunnerJobStatus.SUCCEEDED:
            _take_result(row, job)
        case RunnerJobStatus.CANCELED if row.is_cancel_requested:
            row.status = SelectionStatus.CANCELED
        case RunnerJobStatus.CANCELED:
            _fail(row, code="no_runner", message="No runner took it for a day.")
        case _:
            is_code = re.fullmatch(r"[a-z0-9_]{2,64}", job.error_code)
            _fail(row, code=job.error_code if is_code else UNKNOWN, message=leases.error_of(job))
    row.save()
    RunnerJob.objects.filter(id=job.id).update(settled_at=timezone.now())


def _take_result(row: Selection, job: RunnerJob) -> None:
    """Take what the runner brought, if it can be a result; else a failure of ours, whose time is waste."""
    try:
        k = None if row.options["method"] == Method.ALL else row.k
        result = select_result(leases.result_of(job), n=row.n, k=k, is_text=row.width == 0)
    except KolmError as error:
        _book(row, job, n_tokens=0, billing=Billing.WASTE)
        return _fail(row, code=error.code, message=error.message)
    row.status = SelectionStatus.SUCCEEDED
    row.result_sha256, row.report, row.cohesion_log = job.result_sha256, result.report, result.log
    row.embedder = result.embedder
    row.cost_microusd = _book(row, job, n_tokens=result.n_tokens, billing=Billing.CHARGE)
    return None


def _fail(row: Selection, *, code: str, message: str) -> None:
    row.status, row.failure_code, row.failure_message = SelectionStatus.FAILED, code, message


def _book(row: Selection, job: RunnerJob, *, n_tokens: int, billing: Billing) -> int:
    """The rows that were selected from, whatever time that took, and the tokens that were embedded. Returns the
    micro-USD charged."""
    book = price_book(timezone.now())
    facts = [
        Fact(
            sku=part.sku,
            quantity=part.quantity,
            unit=part.unit,
            amount_microusd=part.amount_microusd,
            price_version=book.version,
            source_key=f"runner:{job.id}:{part.sku}",
            billing=billing,
        )
        for part in costs_of(selecting(row.n), book)
    ]
    tokens = Fact(
        sku=TOKEN_SKU,
        quantity=n_tokens,
        unit="token",
        amount_microusd=cost_microusd(n_tokens, book.prices[TOKEN_SKU]),
        price_version=book.version,
        source_key=f"selection:{row.id}:tokens",
        billing=billing,
    )
    facts += [tokens] if n_tokens else []
    return record(row.tenant_id, facts, compile_id=None, step=STEP, api_key_id=row.api_key_id)
