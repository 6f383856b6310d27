"""The schedule of billing: each tenant has a row with the moment at which its next turn is due. Upkeep wakes workers
for those that are due, and for Stripe's events that wait."""

import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection
from django.utils import timezone

from backend.billing.models import BillingTurn, EventStatus, StripeEvent
from backend.billing.periods import whole_hour_after
from backend.queue import TaskName, enqueue
from backend.tenants.isolation import tenant_scope
from backend.usage.accounts import account_row, month_of

AFTER_THE_HOUR = timedelta(minutes=3)
SOON = timedelta(minutes=10)
EVENTS_EVERY_S = 5.0
_next_events = 0.0


def set_next(tenant_id: UUID, at: datetime, *, is_settled: bool, is_metered: bool) -> None:
    """Write down when the next turn is due, after one at `at`."""
    with tenant_scope(tenant_id):
        account = account_row(tenant_id)
    due_at = max(account.period_end, month_of(at.astimezone(UTC))[0]) + timedelta(minutes=1)
    if is_metered:
        due_at = whole_hour_after(at + timedelta(seconds=1)) + AFTER_THE_HOUR
    if not is_settled:
        due_at = at + SOON
    BillingTurn.objects.filter(tenant_id=tenant_id).update(due_at=due_at)


def make_due(tenant_id: UUID) -> None:
    """Have the next round look at this tenant."""
    BillingTurn.objects.filter(tenant_id=tenant_id).update(due_at=timezone.now(), hinted_at=None)


def wake_billing_workers() -> int:
    """Wake workers for what is due; return how many tasks were sent. One that is lost is sent again minutes later."""
    global _next_events
    n_sent = 0
    for tenant_id in claim_due():
        n_sent += enqueue(TaskName.BILLING_TURN, tenant_id=str(tenant_id))
    if time.monotonic() >= _next_events:
        _next_events = time.monotonic() + EVENTS_EVERY_S
        waiting = StripeEvent.objects.filter(status=EventStatus.RECEIVED, due_at__lte=timezone.now())
        if waiting.exists():
            n_sent += enqueue(TaskName.BILLING_EVENTS)
    return n_sent


def claim_due(limit: int = 100) -> list[UUID]:
    """Return the tenants whose turn is due and was not given out in the last minutes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_billingturn SET hinted_at = now() WHERE tenant_id IN ("
            " SELECT tenant_id FROM billing_billingturn WHERE due_at <= now()"
            " AND (hinted_at IS NULL OR hinted_at < now() - interval '2 minutes')"
            " ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING tenant_id",
            [limit],
        )
        return [row[0] for row in cursor.fetchall()]
