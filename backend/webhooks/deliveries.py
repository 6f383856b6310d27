"""A delivery's life between attempts: what to send, what an attempt's outcome changes, sending again.

Locks are taken in one order everywhere: endpoint, delivery, due row.
"""

import random
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from backend.domain.errors import Conflict, NotFound, TooManyRequests
from backend.domain.ids import Prefix, encode_id
from backend.domain.webhooks.schedule import Health, retry_after_s, wait_s
from backend.tenants.isolation import tenant_scope
from backend.webhooks import endpoints
from backend.webhooks.claims import Claim, is_held
from backend.webhooks.emit import wake
from backend.webhooks.messages import Message, Outcome
from backend.webhooks.models import (
    DeliveryDue,
    DeliveryStatus,
    DisabledReason,
    EndpointStatus,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
)
from backend.webhooks.secrets import signing_secrets

REPLAY_EVERY = timedelta(minutes=1)
MOST_REPLAYED = 10_000
_rng = random.Random()


def message_of(claim: Claim) -> Message | None:
    """Return what to send, or None where there is nothing to send any more: then the delivery has ended."""
    with tenant_scope(claim.tenant_id):
        row = (
            WebhookDelivery.objects.of_tenant(claim.tenant_id)
            .select_related("event", "endpoint")
            .filter(id=claim.delivery_id)
            .first()
        )
        if row is None or row.status != DeliveryStatus.PENDING:
            DeliveryDue.objects.filter(delivery_id=claim.delivery_id, claim=claim.token).delete()
            return None
        if not _is_open(row.endpoint) and not (row.is_test and row.endpoint.deleted_at is None):
            endpoints.cancel_pending(row.endpoint, [row.id])
            return None
        return Message(
            id=encode_id(Prefix.WEBHOOK_EVENT, row.event_id),
            url=row.endpoint.url,
            body=bytes(row.event.body),
            secrets=signing_secrets(row.endpoint, timezone.now()),
            tenant_id=row.tenant_id,
        )


def record(claim: Claim, message: Message, outcome: Outcome) -> None:
    """Write the attempt down and what follows from it, in one transaction. An attempt whose claim was lost meanwhile is
    only written down."""
    with tenant_scope(claim.tenant_id):
        endpoint = _locked_endpoint(claim.tenant_id, claim.endpoint_id)
        row = WebhookDelivery.objects.of_tenant(claim.tenant_id).select_for_update(no_key=True, of=("self",))
        delivery = row.filter(id=claim.delivery_id).first()
        if endpoint is None or delivery is None:
            return
        delivery.attempts += 1
        _log(delivery, message, outcome)
        if not is_held(claim) or delivery.status != DeliveryStatus.PENDING:
            delivery.save(update_fields=["attempts"])
            return
        delivery.tries += 1
        delivery.status_code, delivery.error = outcome.status_code, outcome.error
        if outcome.is_ok:
            _end(delivery, DeliveryStatus.SUCCEEDED)
            _note_success(endpoint)
        else:
            _after_failure(endpoint, delivery, outcome)


def replay(tenant_id: UUID, delivery_id: UUID) -> WebhookDelivery:
    """Send one again: the same id and body, a new timestamp, the whole schedule anew. Raises NotFound, Conflict."""
    with tenant_scope(tenant_id):
        row = WebhookDelivery.objects.of_tenant(tenant_id).select_related("event", "endpoint").filter(id=delivery_id)
        delivery = row.first()
        if delivery is None:
            raise NotFound("There is no such delivery.")
        _check_open(delivery.endpoint)
        if delivery.status == DeliveryStatus.PENDING:
            raise Conflict("This delivery is already in progress; see next_attempt_at.", code="delivery_pending")
        _requeue(tenant_id, [delivery.id], delivery.endpoint_id)
        delivery.refresh_from_db(fields=["status", "tries", "next_at", "ended_at"])
        return delivery


def replay_failed(tenant_id: UUID, endpoint_id: UUID, since: datetime) -> int:
    """Send again all that failed or was canceled since then, oldest first, up to MOST_REPLAYED; returns how many.
    Raises TooManyRequests within a minute of the last time, NotFound, Conflict."""
    with tenant_scope(tenant_id):
        endpoint = endpoints.find(tenant_id, endpoint_id, lock=True)
        _check_open(endpoint)
        now = timezone.now()
        if endpoint.replayed_at is not None and now - endpoint.replayed_at < REPLAY_EVERY:
            left = (REPLAY_EVERY - (now - endpoint.replayed_at)).total_seconds()
            raise TooManyRequests(
                "The last replay of this endpoint was less than a minute ago; wait as Retry-After says.",
                retry_after_s=left,
            )
        endpoint.replayed_at = now
        endpoint.save(update_fields=["replayed_at"])
        ended = WebhookDelivery.objects.of_tenant(tenant_id).filter(
            endpoint=endpoint,
            created_at__gte=since,
            is_test=False,
            status__in=[DeliveryStatus.FAILED, DeliveryStatus.CANCELED],
        )
        ids = list(ended.order_by("created_at").values_list("id", flat=True)[:MOST_REPLAYED])
        return _requeue(tenant_id, ids, endpoint_id)


def _requeue(tenant_id: UUID, ids: list[UUID], endpoint_id: UUID) -> int:
    """Make those of `ids` due now that are not under way. Twice at once: one of the two does it."""
    now = timezone.now()
    ended = WebhookDelivery.objects.of_tenant(tenant_id).filter(id__in=ids).exclude(status=DeliveryStatus.PENDING)
    ids = list(ended.select_for_update(no_key=True).values_list("id", flat=True))
    WebhookDelivery.objects.of_tenant(tenant_id).filter(id__in=ids).update(
        status=DeliveryStatus.PENDING, tries=0, next_at=now, ended_at=None
    )
    DeliveryDue.objects.bulk_create(
        DeliveryDue(delivery_id=id, tenant_id=tenant_id, endpoint_id=endpoint_id, due_at=now) for id in ids
    )
    wake()
    return len(ids)


def _check_open(endpoint: WebhookEndpoint) -> None:
    if not _is_open(endpoint):
        raise Conflict("The endpoint is disabled or deleted; enable it first.", code="endpoint_disabled")


def _is_open(endpoint: WebhookEndpoint) -> bool:
    return endpoint.status == EndpointStatus.ENABLED and endpoint.deleted_at is None


def _locked_endpoint(tenant_id: UUID, endpoint_id: UUID) -> WebhookEndpoint | None:
    # not FOR UPDATE: that would hold up every event, whose deliveries refer to the row
    rows = WebhookEndpoint.objects.of_tenant(tenant_id).select_for_update(no_key=True)
    return rows.filter(id=endpoint_id).first()


def _after_failure(endpoint: WebhookEndpoint, delivery: WebhookDelivery, outcome: Outcome) -> None:
    now = timezone.now()
    is_gone = outcome.error == "gone"
    asked_s = 0.0
    if outcome.status_code in (429, 503):
        asked_s = retry_after_s(outcome.response_headers.get("retry-after", ""), now)
    delay_s = wait_s(delivery.tries, _rng, retry_after_s=asked_s)
    if delay_s is None or is_gone or delivery.is_test:
        _end(delivery, DeliveryStatus.FAILED)
    else:
        delivery.next_at = now + timedelta(seconds=delay_s)
        delivery.save()
        DeliveryDue.objects.filter(delivery_id=delivery.id).update(due_at=delivery.next_at, claim=None)
    if not delivery.is_test:
        _note_failure(endpoint, now, is_gone=is_gone)


def _end(delivery: WebhookDelivery, status: DeliveryStatus) -> None:
    delivery.status, delivery.ended_at, delivery.next_at = status, timezone.now(), None
    delivery.save()
    DeliveryDue.objects.filter(delivery_id=delivery.id).delete()


def _note_success(endpoint: WebhookEndpoint) -> None:
    now = timezone.now()
    is_fresh = endpoint.last_success_at is not None and now - endpoint.last_success_at < timedelta(seconds=30)
    if is_fresh and endpoint.failing_since is None:
        return  # four senders at once need not each write it
    endpoint.failing_since = endpoint.clock_since = None
    endpoint.last_success_at = now
    endpoint.save(update_fields=["failing_since", "clock_since", "last_success_at"])


def _note_failure(endpoint: WebhookEndpoint, now: datetime, *, is_gone: bool) -> None:
    health = Health(failing_since=endpoint.failing_since, clock_since=endpoint.clock_since).after_failure(now)
    endpoint.failing_since, endpoint.clock_since = health.failing_since, health.clock_since
    endpoint.save(update_fields=["failing_since", "clock_since"])
    if not _is_open(endpoint):
        return
    if is_gone:
        endpoints.disable(endpoint, DisabledReason.GONE)
    elif health.is_over(now):
        endpoints.disable(endpoint, DisabledReason.FAILING)


def _log(delivery: WebhookDelivery, message: Message, outcome: Outcome) -> None:
    WebhookAttempt.objects.create(
        tenant_id=delivery.tenant_id,
        delivery=delivery,
        number=delivery.attempts,
        url=message.url,
        request_headers=outcome.request_headers,
        status_code=outcome.status_code,
        response_headers=outcome.response_headers,
        response_head=outcome.response_head.decode(errors="replace").replace("\x00", "\ufffd"),
        response_bytes=outcome.response_bytes,
        response_is_cut=outcome.response_is_cut,
        error=outcome.error,
        detail=outcome.detail,
        latency_ms=outcome.latency_ms,
    )
