"""An endpoint's delivery log: filtered, one delivery with its attempts, sent again."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from backend.console.access import ConsoleRequest, page
from backend.console.rows_and_forms import own_row, page_of
from backend.domain.errors import InvalidInput
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.roles import Permission
from backend.domain.webhooks.events import EventType
from backend.tenants import audit
from backend.webhooks import deliveries
from backend.webhooks.models import DeliveryStatus, WebhookAttempt, WebhookDelivery, WebhookEndpoint

SHOWN_ATTEMPTS = 40
SHOWN_BODY = 2_048  # of a response; what a receiver answers is hostile and may be long
STATES = [state.value for state in DeliveryStatus]


def endpoint_context(request: ConsoleRequest, row: WebhookEndpoint) -> dict[str, Any]:
    """An endpoint with a page of its log, as `?status=`, `?type=` and `?page=` say."""
    wanted = {"status": request.GET.get("status", ""), "type": request.GET.get("type", "")}
    log = WebhookDelivery.objects.of_tenant(row.tenant_id).filter(endpoint_id=row.id).select_related("event")
    if wanted["status"] in STATES:
        log = log.filter(status=wanted["status"])
    if wanted["type"] in set(EventType):
        log = log.filter(event__type=wanted["type"])
    shown_page = page_of(log.order_by("-created_at", "-id"), request.GET.get("page"))
    now = timezone.now()
    return {
        "row": row,
        "public_id": encode_id(Prefix.WEBHOOK_ENDPOINT, row.id),
        "page_obj": shown_page,
        "log": [(encode_id(Prefix.WEBHOOK_DELIVERY, one.id), one) for one in shown_page.object_list],
        "wanted": wanted,
        "states": STATES,
        "types": [type.value for type in EventType],
        "both_sign": row.old_secret_until is not None and row.old_secret_until > now,
        "since": (now - timedelta(days=1)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M"),
        "log_path": f"/v1/webhook_deliveries?endpoint={encode_id(Prefix.WEBHOOK_ENDPOINT, row.id)}&limit=50",
    }


@require_GET
@page(Permission.WEBHOOKS)
def delivery(request: ConsoleRequest, delivery: str) -> HttpResponse:
    """Show what was sent, and what each attempt came to."""
    row = own_row(WebhookDelivery, request.team_session.tenant_id, Prefix.WEBHOOK_DELIVERY, delivery)
    attempts = WebhookAttempt.objects.of_tenant(row.tenant_id).filter(delivery_id=row.id).order_by("-number")
    context = {
        "row": row,
        "public_id": delivery,
        "event_id": encode_id(Prefix.WEBHOOK_EVENT, row.event_id),
        "endpoint_id": encode_id(Prefix.WEBHOOK_ENDPOINT, row.endpoint_id),
        "attempts": [(one, one.response_head[:SHOWN_BODY]) for one in attempts[:SHOWN_ATTEMPTS]],
        "body": _readable(bytes(row.event.body)),
        "path": f"/v1/webhook_deliveries/{delivery}",
    }
    return render(request, "console/webhooks/delivery.html", context)


@require_POST
@page(Permission.WEBHOOKS)
def replay(request: ConsoleRequest, delivery: str) -> HttpResponse:
    session = request.team_session
    deliveries.replay(session.tenant_id, decode_id(Prefix.WEBHOOK_DELIVERY, delivery))
    audit.note(session.tenant_id, actor=session.actor, action="webhook_delivery.replayed", target=delivery)
    messages.success(request, "It is sent again with the same id, so that receivers can recognize it.")
    return redirect("console:webhook_delivery", delivery)


@require_POST
@page(Permission.WEBHOOKS)
def replay_failed(request: ConsoleRequest, endpoint: str) -> HttpResponse:
    session, since = request.team_session, _since(request.POST.get("since", ""))
    n = deliveries.replay_failed(session.tenant_id, decode_id(Prefix.WEBHOOK_ENDPOINT, endpoint), since)
    data = {"since": since.isoformat(), "n_deliveries": n}
    audit.note(session.tenant_id, actor=session.actor, action="webhook_endpoint.replayed", target=endpoint, data=data)
    messages.success(request, f"{n:,} deliveries are sent again." if n else "No delivery has failed since then.")
    return redirect("console:webhook", endpoint)


def _since(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise InvalidInput("Enter the start as a date and a time (UTC).") from None


def _readable(body: bytes) -> str:
    """Indented where it is JSON; what is signed are the bytes as they were sent."""
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except ValueError:
        return body.decode(errors="replace")
