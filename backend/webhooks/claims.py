"""The choice of the due delivery that is sent next: taken in turns among tenants and endpoints, so that nobody's
backlog is in another's way. Times are the database's.

A claim is a lease: whoever takes a delivery has `LEASE_S` to send and record it, then another may take it again. What
was sent and not recorded is so sent again, under the same id (at least once).
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

LEASE_S = 60.0
PER_ENDPOINT = 4
_TURN = 0x6B6F_6C6D_7768  # the advisory lock under which claims are counted

# Walks from endpoint to endpoint over the index, so that the length of a backlog does not matter. `turn` 1 is an
# endpoint's oldest, counting what is being sent to it already; tenants take turns the same way.
_CLAIM = """
WITH RECURSIVE endpoint AS (
    (SELECT endpoint_id, tenant_id FROM webhooks_deliverydue ORDER BY endpoint_id LIMIT 1)
    UNION ALL
    SELECT further.* FROM endpoint, LATERAL (
        SELECT due.endpoint_id, due.tenant_id FROM webhooks_deliverydue due
        WHERE due.endpoint_id > endpoint.endpoint_id ORDER BY due.endpoint_id LIMIT 1
    ) further
), busy AS (
    SELECT endpoint_id, tenant_id, count(*) AS n FROM webhooks_deliverydue
    WHERE claim IS NOT NULL AND due_at > now() GROUP BY endpoint_id, tenant_id
), first AS (
    SELECT found.delivery_id, endpoint.tenant_id, found.due_at, coalesce(busy.n, 0) + found.place AS turn
    FROM endpoint LEFT JOIN busy USING (endpoint_id, tenant_id), LATERAL (
        SELECT due.delivery_id, due.due_at, row_number() OVER (ORDER BY due.due_at) AS place FROM (
            SELECT delivery_id, due_at FROM webhooks_deliverydue
            WHERE endpoint_id = endpoint.endpoint_id AND due_at <= now() ORDER BY due_at LIMIT %(per_endpoint)s
        ) due
    ) found
    WHERE (endpoint.endpoint_id = ANY(%(slow)s::uuid[])) = %(only_slow)s
), ranked AS (
    SELECT first.delivery_id, first.due_at,
        row_number() OVER (PARTITION BY first.tenant_id ORDER BY first.turn, first.due_at) + coalesce(held.n, 0) AS turn
    FROM first LEFT JOIN (SELECT tenant_id, sum(n) AS n FROM busy GROUP BY tenant_id) held USING (tenant_id)
    WHERE first.turn <= %(per_endpoint)s
), taken AS (
    SELECT delivery_id FROM webhooks_deliverydue WHERE due_at <= now() AND delivery_id IN (
        SELECT delivery_id FROM ranked WHERE turn <= %(per_tenant)s ORDER BY turn, due_at LIMIT %(most)s
    ) FOR UPDATE SKIP LOCKED
)
UPDATE webhooks_deliverydue AS due SET claim = gen_random_uuid(), due_at = now() + make_interval(secs => %(lease)s)
FROM taken WHERE due.delivery_id = taken.delivery_id
RETURNING due.delivery_id, due.tenant_id, due.endpoint_id, due.claim
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    delivery_id: UUID
    tenant_id: UUID
    endpoint_id: UUID
    token: UUID


def take(
    most: int, *, per_tenant: int, slow: Collection[UUID] = (), only_slow: bool = False, lease_s: float = LEASE_S
) -> list[Claim]:
    """Claim up to `most` due deliveries, now ours to send. With `only_slow` of the endpoints in `slow` alone, else of
    the others; of one endpoint never more than PER_ENDPOINT at once, of one tenant `per_tenant`."""
    if most <= 0 or (only_slow and not slow):
        return []
    values = {
        "most": most,
        "per_endpoint": PER_ENDPOINT,
        "per_tenant": per_tenant,
        "slow": list(slow),
        "only_slow": only_slow,
        "lease": lease_s,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_TURN])  # or two processes would both find four free places
        cursor.execute(_CLAIM, values)
        return [
            Claim(delivery_id=row[0], tenant_id=row[1], endpoint_id=row[2], token=row[3]) for row in cursor.fetchall()
        ]


def next_due() -> datetime | None:
    """Return when the next delivery becomes due, of all."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(due_at) FROM webhooks_deliverydue")
        due_at: datetime | None = cursor.fetchone()[0]
        return due_at


def is_held(claim: Claim) -> bool:
    """Return whether the claim still stands; locks its row until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM webhooks_deliverydue WHERE delivery_id = %s AND claim = %s FOR UPDATE",
            [claim.delivery_id, claim.token],
        )
        return cursor.fetchone() is not None
