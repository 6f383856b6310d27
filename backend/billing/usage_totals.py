"""The ledger's totals of a stretch of time: by meter, by hour, and what is left to pay.

Only bookings of use count: charges, credits for failures of ours, and what reverses one of them. The moment of a
booking is `booked_at`, by the database's clock, so a period and its hours are cut from the same column.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from backend.domain.money.ledger import ACCRUED, CREDIT, OF_USE, OUR_FAULT, REVENUE, Kind, Meter

METERS: tuple[Meter, ...] = tuple(Meter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Half-open [start, end). `by_meter` is gross, at list price; `accrued` what of it is left to pay after grants and
    credits; `carried` what earlier bookings left on the account (below 0: owed to the tenant)."""

    by_meter: dict[Meter, int]
    grants: int
    our_fault: int
    accrued: int
    carried: int

    @property
    def gross(self) -> int:
        return sum(self.by_meter.values())


def use_between(tenant_id: UUID, start: datetime, end: datetime) -> Use:
    """Exact once nothing can be booked before `end` any more (see `periods`)."""
    sums = dict(_rows(_SUMS, {"tenant": tenant_id, "start": start, "end": end}))
    by_meter = {meter: -sums.get(f"{REVENUE}{meter}", 0) for meter in METERS}
    accrued = sums.get(ACCRUED, 0)
    ((balance,),) = _rows(_BALANCE, {"tenant": tenant_id, "end": end})
    return Use(
        by_meter=by_meter,
        grants=sum(amount for account, amount in sums.items() if account.startswith(CREDIT)),
        our_fault=sums.get(OUR_FAULT, 0),
        accrued=accrued,
        carried=int(balance) - accrued,
    )


def hourly_totals(tenant_id: UUID, start: datetime, end: datetime) -> dict[tuple[Meter, datetime], int]:
    """Gross micro-USD by meter and hour of UTC, for whole hours of [start, end) in which something was booked."""
    rows = _rows(_HOURS, {"tenant": tenant_id, "start": start, "end": end})
    return {(Meter(account.removeprefix(REVENUE)), hour): -int(total) for account, hour, total in rows}


_OF_USE = f"""
    FROM usage_ledgerline l
    JOIN usage_ledgertx t ON t.tenant_id = l.tenant_id AND t.id = l.tx_id
    LEFT JOIN usage_ledgertx r ON r.tenant_id = t.tenant_id AND r.id = t.reverses
    WHERE t.tenant_id = %(tenant)s
      AND coalesce(r.kind, t.kind) IN ({", ".join(f"'{kind}'" for kind in sorted(OF_USE - {Kind.REVERSE}))})
"""
_SUMS = f"""
    SELECT l.account, sum(l.amount_microusd)::bigint {_OF_USE}
      AND t.booked_at >= %(start)s AND t.booked_at < %(end)s GROUP BY l.account
"""
_HOURS = f"""
    SELECT l.account, date_trunc('hour', t.booked_at, 'UTC'), sum(l.amount_microusd)::bigint {_OF_USE}
      AND t.booked_at >= %(start)s AND t.booked_at < %(end)s AND starts_with(l.account, '{REVENUE}')
    GROUP BY 1, 2
"""
# what was accrued before `end`, less what all invoices took
_BALANCE = f"""
    SELECT (SELECT coalesce(sum(l.amount_microusd), 0) {_OF_USE}
              AND t.booked_at < %(end)s AND l.account = '{ACCRUED}')
         + (SELECT coalesce(sum(l.amount_microusd), 0) FROM usage_ledgerline l
              JOIN usage_ledgertx t ON t.tenant_id = l.tenant_id AND t.id = l.tx_id
             WHERE t.tenant_id = %(tenant)s AND t.kind = '{Kind.INVOICE}' AND l.account = '{ACCRUED}')
"""


def _rows(sql: str, params: dict[str, object]) -> Iterator[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        yield from cursor.fetchall()
