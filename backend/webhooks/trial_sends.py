"""A test send: a real event of its own to one endpoint, through the same pipeline, while the caller waits."""

from datetime import timedelta
from uuid import UUID

from django.utils import timezone

from backend.domain.webhooks.events import EventType, entry
from backend.rest.async_queries import let_go
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.webhooks import endpoints
from backend.webhooks.claims import LEASE_S, Claim
from backend.webhooks.deliveries import message_of, record
from backend.webhooks.emit import write_event
from backend.webhooks.models import DeliveryDue, WebhookDelivery

TEST_S = 10.0


def send_test(tenant_id: UUID, endpoint_id: UUID, type: EventType = EventType.TEST) -> WebhookDelivery:
    """The delivery after its one attempt, ten seconds at most. The body is the catalogue's example with `"test": true`
    in `data`. For callers without a transaction: none is open while the receiver is waited for. Raises NotFound."""
    with tenant_scope(tenant_id):
        endpoint = endpoints.find(tenant_id, endpoint_id)
        event = write_event(tenant_id, type, {"object": dict(entry(type).object), "test": True})
        lease_until = timezone.now() + timedelta(seconds=LEASE_S)
        delivery = WebhookDelivery.objects.create(
            tenant_id=tenant_id, event=event, endpoint=endpoint, is_test=True, next_at=timezone.now()
        )
        claim = Claim(delivery_id=delivery.id, tenant_id=tenant_id, endpoint_id=endpoint.id, token=new_uuid7())
        DeliveryDue.objects.create(
            delivery_id=delivery.id,
            tenant_id=tenant_id,
            endpoint_id=endpoint.id,
            due_at=lease_until,
            claim=claim.token,
        )
    message = message_of(claim)
    let_go()
    if message is not None:
        from backend.webhooks.sending import send  # brings httpx, which a web process may never need

        record(claim, message, send(message, total_s=TEST_S))
    with tenant_scope(tenant_id):
        return WebhookDelivery.objects.of_tenant(tenant_id).select_related("event").get(id=delivery.id)
