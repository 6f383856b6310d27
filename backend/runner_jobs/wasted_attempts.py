"""Runner time that came to nothing: booked as waste, which kolm carries and the customer sees. And the time until the
next attempt, where the reason is one that passes."""

import math
from datetime import datetime, timedelta

from django.db.models import F
from django.utils import timezone

from backend.compiles.models import Compile, StepRun
from backend.domain.money.pricing import cost_microusd, price_book
from backend.runner_jobs.models import RunnerJob
from backend.usage.ledger import Fact, record
from backend.usage.models import Billing

SKU = "runner.second"
# a hub that is away, a cache or a disk that is full: what passes, though not within seconds
OF_ONE_RUNNER = frozenset({"base_cache_full", "base_cache_failed", "runner_disk_full"})  # another may do it at once
PASSING = OF_ONE_RUNNER | {"hub_unavailable"}
_PAUSE_S, _GROWTH = 15, 4


def not_before(code: str, attempts_in_vain: int) -> datetime | None:
    """The time from which a job may be claimed again after such a failure, 1, 4 and 16 minutes from now; None: at
    once."""
    return timezone.now() + timedelta(seconds=_PAUSE_S * _GROWTH**attempts_in_vain) if code in PASSING else None


def book_lost_attempt(job: RunnerJob) -> None:
    """Book the attempt under way, in the transaction that takes it from its runner; the caller holds the compile's
    lease row and the tenant's scope."""
    if job.started_at is None:
        return
    book = price_book(timezone.now())
    seconds = max(1, math.ceil((timezone.now() - job.started_at).total_seconds()))
    fact = Fact(
        sku=SKU,
        quantity=seconds,
        unit="second",
        amount_microusd=cost_microusd(seconds, book.prices[SKU]),
        price_version=book.version,
        source_key=f"runner:{job.id}:lost:{job.attempts}",
        billing=Billing.WASTE,
    )
    record(job.tenant_id, [fact], compile_id=job.compile_id, step=job.step or "run")
    if job.compile_id is not None:
        waste = F("waste_microusd") + fact.amount_microusd
        Compile.objects.filter(tenant_id=job.tenant_id, id=job.compile_id).update(waste_microusd=waste)
        steps = StepRun.objects.filter(tenant_id=job.tenant_id, compile_id=job.compile_id, name=job.step)
        steps.update(waste_microusd=waste)
