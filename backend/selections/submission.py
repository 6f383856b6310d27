"""A selection begins: its rows are in the blob store, its work is queued for a runner."""

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from backend.domain.errors import InvalidInput, TooManyRequests
from backend.domain.jobs.runner_jobs import RunnerJobKind, SelectJob
from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.options import Options
from backend.runner_jobs import leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.selections.models import Selection
from backend.selections.options import Wish
from backend.selections.receiving import Received

MAX_OPEN = 20  # selections of one tenant that wait or run: runners take jobs in the order of their coming
RETRY_AFTER_S = 10.0
MAX_COMPLETE_ROWS = 20_000  # of the domain, which a web process does not import for one number (a test compares them)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Everything that a selection needs, checked."""

    rows: Received
    options: Options
    stratify: bool


def refuse_too_many_open(tenant_id: UUID) -> None:
    """Raises TooManyRequests. Two requests at once may both be the last: it is a courtesy to others, not a law."""
    jobs = RunnerJob.objects.filter(tenant_id=tenant_id, kind=RunnerJobKind.SELECT)
    if jobs.filter(status__in=(RunnerJobStatus.QUEUED, RunnerJobStatus.LEASED)).count() >= MAX_OPEN:
        raise TooManyRequests(
            f"{MAX_OPEN} selections wait or run already; wait for one of them, or cancel it.",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_selections",
        )


def order_of(rows: Received, wish: Wish) -> Order:
    """Raises InvalidInput for more rows than a linkage can take."""
    options, stratify = wish.options_for(rows.n)
    if options.linkage is Linkage.COMPLETE and rows.n > MAX_COMPLETE_ROWS:
        raise InvalidInput(
            f"Complete linkage takes at most {MAX_COMPLETE_ROWS:,} rows and there are {rows.n:,}; use average linkage.",
            code="too_many_candidates",
        )
    return Order(rows=rows, options=options, stratify=stratify)


def submit(order: Order, *, api_key_id: UUID | None = None) -> Selection:
    """Queue it, in the caller's transaction and tenant."""
    rows, options = order.rows, _plain(order)
    k = options.pop("k")
    job = SelectJob(
        columns_sha256=rows.columns_sha256,
        rows_sha256=rows.rows_sha256,
        n=rows.n,
        width=rows.width,
        k=k,
        options=options,
    )
    inputs = (rows.columns_sha256, rows.rows_sha256)
    offered = leases.offer(rows.tenant_id, Offer(kind=RunnerJobKind.SELECT, payload=job.to_json(), inputs=inputs))
    return Selection.objects.create(
        tenant_id=rows.tenant_id,
        id=rows.selection_id,
        runner_job_id=offered.id,
        api_key_id=api_key_id,
        n=rows.n,
        width=rows.width,
        k=k,
        options=options,
        columns_sha256=rows.columns_sha256,
        rows_sha256=rows.rows_sha256,
    )


def _plain(order: Order) -> dict[str, Any]:
    """The options as JSON, under the names of `select`."""
    values = asdict(order.options) | {"stratify": order.stratify}
    if not order.options.is_traffic:
        del values["is_traffic"]  # a runner of the release before does not know it
    return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}
