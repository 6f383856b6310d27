"""The webhook pages: endpoints with their health, making one, and what is done to one. The log is in
`resource_deliveries`."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from backend.console.access import ConsoleRequest, page, recently_authenticated
from backend.console.rows_and_forms import own_row
from backend.console.webhooks.deliveries import SHOWN_BODY, endpoint_context
from backend.domain.errors import CustomerError, InvalidInput
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.roles import Permission
from backend.domain.webhooks.events import EventType, known_patterns
from backend.tenants.isolation import tenant_scope
from backend.webhooks import endpoints
from backend.webhooks.models import WebhookAttempt, WebhookDelivery, WebhookEndpoint
from backend.webhooks.secrets import receiver_secrets
from backend.webhooks.trial_sends import send_test

OVERLAPS = {"0": "none: the old secret stops now", "3600": "an hour", "86400": "a day", "604800": "seven days"}
USUAL_OVERLAP = "86400"
HEALTH_HOURS = 24
MAX_DESCRIPTION = 200


@require_GET
@page(Permission.WEBHOOKS)
def webhooks(request: ConsoleRequest) -> HttpResponse:
    return render(request, "console/webhooks/list.html", _context(request.team_session.tenant_id))


@require_POST
@page(Permission.WEBHOOKS)
def create(request: ConsoleRequest) -> HttpResponse:
    """The answer is the endpoint's page with the secret in it."""
    session, form = request.team_session, request.POST
    try:
        row, secret = endpoints.create(
            session.tenant_id,
            url=form.get("url", "").strip(),
            events=_events(form.getlist("events")),
            description=form.get("description", "").strip()[:MAX_DESCRIPTION],
            signature="v1a" if form.get("signature") == "v1a" else "v1",
            actor=session.actor,
        )
    except CustomerError as error:
        context = _context(session.tenant_id, form.getlist("events")) | {"error": error.message, "form": form}
        return render(request, "console/webhooks/list.html", context, status=422)
    return _with_secret(request, row, secret)


@require_GET
@page(Permission.WEBHOOKS)
def webhook(request: ConsoleRequest, endpoint: str) -> HttpResponse:
    return render(request, "console/webhooks/one.html", _one(request, endpoint))


@require_POST
@page(Permission.WEBHOOKS)
def update(request: ConsoleRequest, endpoint: str) -> HttpResponse:
    session, form = request.team_session, request.POST
    endpoints.update(
        session.tenant_id,
        decode_id(Prefix.WEBHOOK_ENDPOINT, endpoint),
        actor=session.actor,
        url=form.get("url", "").strip(),
        events=_events(form.getlist("events")),
        description=form.get("description", "").strip()[:MAX_DESCRIPTION],
    )
    messages.success(request, "The endpoint is changed; pending deliveries go to its new address.")
    return redirect("console:webhook", endpoint)


@require_POST
@page(Permission.WEBHOOKS)
@recently_authenticated
def roll(request: ConsoleRequest, endpoint: str) -> HttpResponse:
    """A new secret, shown in the answer; until the overlap ends both sign."""
    overlap = request.POST.get("overlap", USUAL_OVERLAP)
    if overlap not in OVERLAPS:
        raise InvalidInput("Choose one of the overlaps that are offered.")
    session, endpoint_id = request.team_session, decode_id(Prefix.WEBHOOK_ENDPOINT, endpoint)
    row, secret = endpoints.roll(session.tenant_id, endpoint_id, overlap_s=int(overlap), actor=session.actor)
    return _with_secret(request, row, secret)


@require_POST
@page(Permission.WEBHOOKS)
def enable(request: ConsoleRequest, endpoint: str) -> HttpResponse:
    """Enable an endpoint, or disable it, as the form says."""
    session, is_on = request.team_session, request.POST.get("enabled") == "1"
    endpoint_id = decode_id(Prefix.WEBHOOK_ENDPOINT, endpoint)
    endpoints.set_enabled(session.tenant_id, endpoint_id, enabled=is_on, actor=session.actor)
    outcome = "enabled; a replay sends what it missed" if is_on else "disabled; pending deliveries are canceled"
    messages.success(request, f"The endpoint is {outcome}.")
    return redirect("console:webhook", endpoint)


@require_POST
@page(Permission.WEBHOOKS)
def delete(request: ConsoleRequest, endpoint: str) -> HttpResponse:
    session = request.team_session
    row = endpoints.delete(session.tenant_id, decode_id(Prefix.WEBHOOK_ENDPOINT, endpoint), actor=session.actor)
    messages.success(request, f"{row.url} is deleted, and its secrets are destroyed.")
    return redirect("console:webhooks")


@require_POST
@page(Permission.WEBHOOKS, atomic=False)
def test(request: ConsoleRequest, endpoint: str) -> HttpResponse:
    """Sent while the page waits. Not atomic: the receiver may take its time."""
    session = request.team_session
    sent = send_test(session.tenant_id, decode_id(Prefix.WEBHOOK_ENDPOINT, endpoint))
    with tenant_scope(session.tenant_id):
        log = WebhookAttempt.objects.of_tenant(session.tenant_id).filter(delivery_id=sent.id)
        attempt = log.order_by("-number").first()
        context = _one(request, endpoint) | {
            "test": attempt,
            "test_id": encode_id(Prefix.WEBHOOK_DELIVERY, sent.id),
            "test_head": attempt.response_head[:SHOWN_BODY] if attempt is not None else "",
        }
        return render(request, "console/webhooks/one.html", context)


def _one(request: ConsoleRequest, endpoint: str) -> dict[str, Any]:
    row = own_row(WebhookEndpoint, request.team_session.tenant_id, Prefix.WEBHOOK_ENDPOINT, endpoint)
    return endpoint_context(request, row) | {
        "groups": event_groups(row.events),
        "overlaps": OVERLAPS,
        "usual_overlap": USUAL_OVERLAP,
        "max_description": MAX_DESCRIPTION,
    }


def _with_secret(request: ConsoleRequest, row: WebhookEndpoint, secret: str) -> HttpResponse:
    public_id = encode_id(Prefix.WEBHOOK_ENDPOINT, row.id)
    response = render(
        request, "console/webhooks/one.html", _one(request, public_id) | {"shown": receiver_secrets(secret)}
    )
    response["Cache-Control"] = "no-store"
    return response


def _context(tenant_id: UUID, checked: Sequence[str] = ("*",)) -> dict[str, Any]:
    rows = WebhookEndpoint.objects.of_tenant(tenant_id).filter(deleted_at=None).order_by("-created_at", "-id")
    counts = _counts(tenant_id)
    return {
        "rows": [(encode_id(Prefix.WEBHOOK_ENDPOINT, row.id), row, counts[row.id]) for row in rows],
        "groups": event_groups(checked),
        "hours": HEALTH_HOURS,
        "example": {"url": "https://example.com/kolm", "events": ["*"]},
        "max_description": MAX_DESCRIPTION,
    }


def _counts(tenant_id: UUID) -> defaultdict[UUID, dict[str, int]]:
    """Deliveries of the last day by endpoint and state."""
    since = timezone.now() - timedelta(hours=HEALTH_HOURS)
    rows = WebhookDelivery.objects.of_tenant(tenant_id).filter(created_at__gte=since)
    counts: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
    for row in rows.values("endpoint_id", "status").annotate(n=Count("id")).order_by():
        counts[row["endpoint_id"]][row["status"]] = row["n"]
    return counts


def event_groups(checked: Sequence[str]) -> list[tuple[str, list[tuple[str, bool]]]]:
    """The catalogue by noun, `*` first, each with whether it is chosen."""
    groups: dict[str, list[tuple[str, bool]]] = {"everything": [("*", "*" in checked)]}
    for type in EventType:
        noun = type.value.split(".")[0]
        groups.setdefault(noun, [(f"{noun}.*", f"{noun}.*" in checked)]).append((type.value, type.value in checked))
    return [(noun.replace("_", " "), boxes) for noun, boxes in groups.items()]


def _events(chosen: Sequence[str]) -> list[str]:
    known = known_patterns()
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        raise InvalidInput("Choose at least one event type.")
    return list(dict.fromkeys(chosen))
