"""Rows as the JSON that the API answers."""

import json
from typing import Any

from backend.domain.ids import Prefix, encode_id
from backend.domain.webhooks.schedule import WAITS_S
from backend.rest.times import rfc3339
from backend.webhooks.models import WebhookAttempt, WebhookDelivery, WebhookEndpoint, WebhookEvent


def endpoint_shape(row: WebhookEndpoint) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.WEBHOOK_ENDPOINT, row.id),
        "object": "webhook_endpoint",
        "url": row.url,
        "description": row.description,
        "events": row.events,
        "signature": row.signature,
        "status": row.status,
        "disabled_reason": row.disabled_reason or None,
        "disabled_at": rfc3339(row.disabled_at),
        "failing_since": rfc3339(row.failing_since),
        "last_success_at": rfc3339(row.last_success_at),
        "old_secret_until": rfc3339(row.old_secret_until),
        "created_at": rfc3339(row.created_at),
    }


def event_shape(row: WebhookEvent) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(bytes(row.body))
    return {
        "id": encode_id(Prefix.WEBHOOK_EVENT, row.id),
        "object": "webhook_event",
        "type": row.type,
        "timestamp": body["timestamp"],
        "data": body["data"],
        "body": bytes(row.body).decode(),
        "created_at": rfc3339(row.created_at),
    }


def delivery_shape(row: WebhookDelivery) -> dict[str, Any]:
    """`row.event` is loaded."""
    return {
        "id": encode_id(Prefix.WEBHOOK_DELIVERY, row.id),
        "object": "webhook_delivery",
        "event": encode_id(Prefix.WEBHOOK_EVENT, row.event_id),
        "type": row.event.type,
        "endpoint": encode_id(Prefix.WEBHOOK_ENDPOINT, row.endpoint_id),
        "status": row.status,
        "test": row.is_test,
        "attempts": row.attempts,
        "attempts_left": max(0, (1 if row.is_test else len(WAITS_S)) - row.tries) if row.status == "pending" else 0,
        "status_code": row.status_code,
        "error": row.error or None,
        "next_attempt_at": rfc3339(row.next_at),
        "created_at": rfc3339(row.created_at),
        "ended_at": rfc3339(row.ended_at),
    }


def delivery_detail(row: WebhookDelivery) -> dict[str, Any]:
    """Return a delivery with the body and every attempt, newest first."""
    attempts = WebhookAttempt.objects.of_tenant(row.tenant_id).filter(delivery_id=row.id).order_by("-number")
    log = [attempt_shape(attempt) for attempt in attempts[:100]]
    return delivery_shape(row) | {"body": bytes(row.event.body).decode(), "log": log}


def attempt_shape(row: WebhookAttempt) -> dict[str, Any]:
    response = {
        "status_code": row.status_code,
        "headers": row.response_headers,
        "body": row.response_head,
        "size_bytes": row.response_bytes,
        "cut": row.response_is_cut,
    }
    return {
        "object": "webhook_attempt",
        "number": row.number,
        "url": row.url,
        "request_headers": row.request_headers,
        "response": response if row.status_code is not None else None,
        "error": row.error or None,
        "detail": row.detail or None,
        "latency_ms": row.latency_ms,
        "created_at": rfc3339(row.created_at),
    }
