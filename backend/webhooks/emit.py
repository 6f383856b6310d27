"""Writing an event for webhooks, in the transaction of the change that it tells of (an outbox): with the change come
its event and one delivery for each endpoint that wants it, or nothing does."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backend.domain.webhooks.events import frozen_body, matches
from backend.rest.times import rfc3339
from backend.wakeups import announce
from backend.webhooks.models import DeliveryDue, EndpointStatus, WebhookDelivery, WebhookEndpoint, WebhookEvent

WAKE = "webhooks"  # what `workers.deliveries` listens to


def emit(tenant_id: UUID, type: str, data: dict[str, Any], *, but_not: UUID | None = None) -> WebhookEvent:
    """Write one event and its deliveries; they go out after the caller's commit. `data["object"]` is the object as the
    API shows it. The endpoint `but_not` is left out: it is what the event is about."""
    event = write_event(tenant_id, type, data)
    enabled = WebhookEndpoint.objects.of_tenant(tenant_id).filter(status=EndpointStatus.ENABLED, deleted_at=None)
    deliver(event, [row for row in enabled if matches(row.events, type) and row.id != but_not])
    return event


def write_event(tenant_id: UUID, type: str, data: dict[str, Any]) -> WebhookEvent:
    """The event alone, without a delivery."""
    body = frozen_body(type, rfc3339(timezone.now()) or "", data)
    return WebhookEvent.objects.create(tenant_id=tenant_id, type=type, body=body)


def deliver(event: WebhookEvent, endpoints: list[WebhookEndpoint]) -> list[WebhookDelivery]:
    """One pending delivery for each endpoint, due now."""
    if not endpoints:
        return []
    now = timezone.now()
    rows = WebhookDelivery.objects.bulk_create(
        WebhookDelivery(tenant_id=event.tenant_id, event=event, endpoint=endpoint, next_at=now)
        for endpoint in endpoints
    )
    DeliveryDue.objects.bulk_create(
        DeliveryDue(delivery_id=row.id, tenant_id=row.tenant_id, endpoint_id=row.endpoint_id, due_at=now)
        for row in rows
    )
    wake()
    return rows


def wake() -> None:
    """Tell the sender to look, once the caller's transaction is in."""
    transaction.on_commit(lambda: announce(WAKE), robust=True)
