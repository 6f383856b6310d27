"""The periods of a tenant and who bills each: half-open stretches of time, each starting where the one
before it ended. They are months of UTC, cut once more at the hour in which a subscription begins or ends.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from backend.billing.models import BilledBy, Invoice, InvoiceKind, Subscription
from backend.usage.accounts import account_row, month_of
from backend.usage.models import Account

# A booking is dated by the start of its transaction. At the end of a month the account's lock sees to it that nothing
# more is booked before the end; at a cut within a month, waiting does: no transaction is open for so long.
SETTLING = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    start: datetime
    end: datetime
    billed_by: BilledBy
    subscription: Subscription | None

    @property
    def is_whole_month(self) -> bool:
        return (self.start, self.end) == month_of(self.start)


def ended_periods(tenant_id: UUID, account: Account, at: datetime) -> list[Period]:
    """The periods without an invoice in which nothing can be booked any more, oldest first. `account` is locked, or
    the answer may lag."""
    subscriptions = list(Subscription.objects.of_tenant(tenant_id).order_by("metered_from", "id"))
    start, ended = open_since(tenant_id), []
    while True:
        period = _period_from(start, subscriptions)
        is_month_end = period.end == month_of(period.start)[1]
        if not (account.period_start >= period.end if is_month_end else at >= period.end + SETTLING):
            return ended
        ended.append(period)
        start = period.end


def open_since(tenant_id: UUID) -> datetime:
    """Return where the last invoiced period ended; for a new tenant, the beginning of its first month."""
    rows = Invoice.objects.of_tenant(tenant_id).filter(kind=InvoiceKind.USAGE)
    last = rows.order_by("-period_end").values_list("period_end", flat=True).first()
    return last or month_of(account_row(tenant_id).created_at)[0]


def _period_from(start: datetime, subscriptions: list[Subscription]) -> Period:
    end, billing = month_of(start)[1], None
    for row in subscriptions:
        if row.metered_from <= start and (row.metered_until is None or row.metered_until > start):
            billing = row
        for cut in (row.metered_from, row.metered_until):
            if cut is not None and start < cut < end:
                end = cut
    by = BilledBy.STRIPE if billing else BilledBy.KOLM
    return Period(start=start, end=end, billed_by=by, subscription=billing)


def whole_hour_after(at: datetime) -> datetime:
    """The hour that begins then or next.

    >>> [whole_hour_after(datetime(2026, 11, 22, 10, minute)).hour for minute in (0, 1)]
    [10, 11]
    """
    floor = at.replace(minute=0, second=0, microsecond=0)
    return floor if floor == at else floor + timedelta(hours=1)


def lock_books(tenant_id: UUID) -> None:
    """Lock the tenant's books: until the transaction ends nobody else closes a period or writes an invoice of this
    tenant. Before the account's lock, which is the last one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('billing:' || %s, 0))", [str(tenant_id)])
