"""Events in an order in which nothing appears behind a reader's back.

By time alone a reader would lose what commits late: an event of 10:00:00 whose transaction ends at 10:00:05 is not
there for who asked at 10:00:03 and then asks for later ones. Here events are in the order of their transactions'
numbers, and only those below every transaction still under way are shown: what is shown has nothing unseen before
it.
"""

from uuid import UUID

from django.db import connection

from backend.domain.errors import InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id
from backend.webhooks.models import WebhookEvent

START = "start"
_SETTLED = "xact < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


def newest(tenant_id: UUID) -> UUID | None:
    """The last event that a reader who begins now has missed."""
    rows = WebhookEvent.objects.raw(
        f"SELECT id FROM webhooks_webhookevent WHERE tenant_id = %s AND {_SETTLED} ORDER BY xact DESC, id DESC LIMIT 1",
        [tenant_id],
    )
    events = list(rows)
    return events[0].id if events else None


def events_after(tenant_id: UUID, cursor: str, *, limit: int) -> list[WebhookEvent]:
    """The next events behind a cursor (an event's id, or `start`), oldest first. Raises InvalidInput."""
    xact, id = (-1, UUID(int=0)) if cursor == START else _place(tenant_id, cursor)
    with connection.cursor() as db:
        db.execute(
            f"SELECT id FROM webhooks_webhookevent WHERE tenant_id = %s AND (xact, id) > (%s, %s) AND {_SETTLED}"
            " ORDER BY xact, id LIMIT %s",
            [tenant_id, xact, id, limit],
        )
        ids = [row[0] for row in db.fetchall()]
    rows = {row.id: row for row in WebhookEvent.objects.of_tenant(tenant_id).filter(id__in=ids)}
    return [rows[id] for id in ids if id in rows]


def _place(tenant_id: UUID, cursor: str) -> tuple[int, UUID]:
    try:
        id = decode_id(Prefix.WEBHOOK_EVENT, cursor)
    except NotFound:
        id = UUID(int=0)
    row = WebhookEvent.objects.of_tenant(tenant_id).filter(id=id).values_list("xact", "id").first()
    if row is None:
        raise InvalidInput(
            f"`after` is not a cursor: {cursor[:60]!r}; use next_cursor of the last answer, or {START!r}.",
            code="invalid_request",
        )
    return row
