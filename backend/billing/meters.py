"""Telling Stripe what each meter comes to, hour by hour.

A push says an hour's total, not what was added: Stripe takes the newest word for an hour, so a push may be late, be
repeated, or correct an earlier one. What was said is written down beside what the ledger has, and every difference is
pushed until there is none.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import F, Q, QuerySet

from backend.billing import catalog, usage_totals
from backend.billing.incidents import open_incident
from backend.billing.models import StripePush, Subscription
from backend.billing.stripe import meters
from backend.domain.money.ledger import Meter
from backend.tenants.isolation import tenant_scope

TAKEN = timedelta(days=34)  # Stripe takes hours of the past 35 days
LOOK_BACK = timedelta(hours=48)
BATCH = 50
# by meter and hour: what we pushed, what Stripe has
Differences = dict[tuple[Meter, datetime], tuple[int, int]]


def billed_hours(tenant_id: UUID, now: datetime) -> list[tuple[datetime, datetime]]:
    """The stretches of whole, past hours that Stripe bills."""
    rows = Subscription.objects.of_tenant(tenant_id).order_by("metered_from")
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    spans = [(row.metered_from, min(row.metered_until or end, end)) for row in rows]
    return [(start, until) for start, until in spans if start < until]


def refresh(tenant_id: UUID, *, now: datetime, since: datetime | None = None) -> int:
    """Bring the totals up to the ledger, in the tenant's scope, for hours since then (default: two days). Returns how
    many changed."""
    n_changed = 0
    for start, end in billed_hours(tenant_id, now):
        start = max(start, (now - LOOK_BACK if since is None else since).replace(minute=0, second=0, microsecond=0))
        if start < end:
            n_changed += _refresh(tenant_id, start, end)
    return n_changed


def _refresh(tenant_id: UUID, start: datetime, end: datetime) -> int:
    totals = usage_totals.hourly_totals(tenant_id, start, end)
    rows = _between(tenant_id, start, end).select_for_update()
    known = {(Meter(row.meter), row.hour): row for row in rows}
    changed = [row for place, row in known.items() if row.total != totals.get(place, 0)]
    for row in changed:
        row.total = totals.get((Meter(row.meter), row.hour), 0)
    StripePush.objects.bulk_update(changed, ["total"])
    fresh = [
        StripePush(tenant_id=tenant_id, meter=meter, hour=hour, total=total)
        for (meter, hour), total in totals.items()
        if (meter, hour) not in known and total
    ]
    StripePush.objects.bulk_create(fresh, ignore_conflicts=True)
    return len(changed) + len(fresh)


def unpushed_totals(tenant_id: UUID) -> QuerySet[StripePush]:
    rows = StripePush.objects.of_tenant(tenant_id)
    return rows.filter(Q(pushed_total=None) | ~Q(pushed_total=F("total"))).order_by("hour", "meter")


def push(tenant_id: UUID, customer: str, *, now: datetime) -> int:
    """Push every total that Stripe does not have, outside of any transaction. Returns how many. Raises
    StripeUnavailable, with what was pushed before kept."""
    n_pushed = 0
    while batch := _next_batch(tenant_id, now):
        pushed: list[StripePush] = []
        try:
            for row in batch:
                _push_one(row, customer)
                pushed.append(row)
        finally:
            _record_pushed(tenant_id, pushed, now)
        n_pushed += len(pushed)
    return n_pushed


def _push_one(row: StripePush, customer: str) -> None:
    # the key names the attempt: Stripe answers a key that met a 500 with that 500 for a day
    key = f"push-{row.id}-{row.n_attempts}"
    name = catalog.event_name(Meter(row.meter))
    meters.push_total(event_name=name, customer=customer, hour=row.hour, total=row.total, key=key)


def _next_batch(tenant_id: UUID, now: datetime) -> list[StripePush]:
    """Some rows that Stripe does not have as they are; that they are tried is in the table before they are."""
    with tenant_scope(tenant_id):
        rows = unpushed_totals(tenant_id)
        for row in rows.filter(hour__lt=now - TAKEN):
            subject = f"{row.meter} {row.hour:%Y-%m-%dT%H}"
            open_incident("usage_too_old_to_push", subject, tenant_id=tenant_id, total=row.total)
        batch = list(rows.filter(hour__gte=now - TAKEN)[:BATCH])
        for row in batch:
            row.n_attempts += 1
        StripePush.objects.bulk_update(batch, ["n_attempts"])
    return batch


def _record_pushed(tenant_id: UUID, pushed: list[StripePush], now: datetime) -> None:
    """A crash before this pushes them once more, which changes nothing."""
    for row in pushed:
        row.pushed_total, row.pushed_at = row.total, now
    with tenant_scope(tenant_id):
        StripePush.objects.bulk_update(pushed, ["pushed_total", "pushed_at"])


def differences(tenant_id: UUID, customer: str, start: datetime, end: datetime) -> Differences:
    """Hours of [start, end) of which Stripe has another total than what we pushed last: (ours, Stripe's)."""
    with tenant_scope(tenant_id):
        ours = pushed_totals(tenant_id, start, end)
    differing: Differences = {}
    for meter, entry in catalog.meter_entries().items():
        remote = meters.hourly_totals(meter_id=entry.meter_id, customer=customer, start=start, end=end)
        hours = {hour for of, hour in ours if of == meter} | set(remote)
        for hour in sorted(hours):
            mine, theirs = ours.get((meter, hour), 0), int(remote.get(hour, 0))
            if mine != theirs:
                differing[meter, hour] = (mine, theirs)
    return differing


def report(tenant_id: UUID, differing: Differences) -> None:
    """An incident for every hour that differs; nothing is mended."""
    for (meter, hour), (ours, theirs) in differing.items():
        subject = f"{meter} {hour:%Y-%m-%dT%H}"
        open_incident("meter_differs", subject, tenant_id=tenant_id, ours=ours, stripe=theirs)


def was_pushed_since(tenant_id: UUID, start: datetime, end: datetime, since: datetime) -> bool:
    """Return whether hours of [start, end) were pushed so lately that Stripe may not have added them up."""
    with tenant_scope(tenant_id):
        return _between(tenant_id, start, end).filter(pushed_at__gte=since).exists()


def pushed_totals(tenant_id: UUID, start: datetime, end: datetime) -> dict[tuple[Meter, datetime], int]:
    """Return what was pushed to Stripe of [start, end), in the tenant's scope; 0 where nothing was."""
    return {(Meter(row.meter), row.hour): row.pushed_total or 0 for row in _between(tenant_id, start, end)}


def _between(tenant_id: UUID, start: datetime, end: datetime) -> QuerySet[StripePush]:
    return StripePush.objects.of_tenant(tenant_id).filter(hour__gte=start, hour__lt=end)
