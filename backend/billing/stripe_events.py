"""Stripe's events: taken in with its signature, kept before anything is done, done once by a worker.

POST /v1/stripe/webhook answers 200 when the event's row is in. The row is written with the status `received` whoever
comes first, and workers poll for rows of that status: so neither a crash after the insert nor a second delivery loses
or doubles anything. What an event says is not believed: the object is fetched as it is now, so the order of events
does not matter.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from backend.billing import activation, schedule
from backend.billing.incidents import open_incident
from backend.billing.models import EventStatus, StripeEvent
from backend.billing.stripe import invoices, subscriptions
from backend.billing.stripe.api import SignedEvent, StripeRefused, StripeUnavailable, is_configured, signed_event
from backend.rest.problems import problem_response

log = logging.getLogger("kolm.billing")

MAX_BODY = 256_000  # Stripe's events are a few kilobytes
# Stripe makes an invoice final an hour after this event was answered with 200, or after three days. So the answer waits
# until the draft is held: however long our workers are away, no invoice goes out without its last hours.
DONE_BEFORE_THE_ANSWER = frozenset({"invoice.created"})
LEASE = timedelta(minutes=2)
MOST_ATTEMPTS = 12


@csrf_exempt
@transaction.non_atomic_requests
def webhook(request: HttpRequest) -> HttpResponse:
    """Stripe's deliveries. Authenticated by signature alone."""
    if request.method != "POST":
        return problem_response(
            request, status=405, code="method_not_allowed", detail="Stripe sends its events by POST."
        )
    if not (is_configured() and settings.KOLM_STRIPE_WEBHOOK_SECRET):
        detail = "This installation takes no payments: it has no Stripe key and webhook secret."
        return problem_response(request, status=501, code="payments_not_configured", detail=detail)
    if len(request.body) > MAX_BODY:
        detail = f"The body is larger than {MAX_BODY:,} bytes, more than any event of Stripe has."
        return problem_response(request, status=413, code="payload_too_large", detail=detail)
    signature = request.headers.get("Stripe-Signature", "")
    event = signed_event(request.body, signature, settings.KOLM_STRIPE_WEBHOOK_SECRET)
    if event is None or not event.id:
        detail = "The signature is missing, wrong or more than 300 s old. Check KOLM_STRIPE_WEBHOOK_SECRET."
        return problem_response(request, status=400, code="invalid_signature", detail=detail)
    keep(event)
    if event.type in DONE_BEFORE_THE_ANSWER and not _do_now(event.id):
        detail = "The event is stored and not processed yet; send it again."
        return problem_response(request, status=503, code="unavailable", detail=detail, is_retryable=True)
    return JsonResponse({"received": True})


def keep(event: SignedEvent) -> bool:
    """Store the event; False when it was stored before."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_stripeevent"
            " (event_id, type, object_type, object_id, status, n_attempts, n_deliveries, fault)"
            " VALUES (%s, %s, %s, %s, %s, 0, 1, '') ON CONFLICT (event_id)"
            " DO UPDATE SET n_deliveries = billing_stripeevent.n_deliveries + 1 RETURNING n_deliveries",
            [event.id[:255], event.type[:100], event.object_type[:64], event.object_id[:255], EventStatus.RECEIVED],
        )
        return bool(cursor.fetchone()[0] == 1)


def process_due(limit: int = 50, *, now: datetime | None = None) -> int:
    """Process events that are received and due. Returns how many were done with."""
    n_done = 0
    for _ in range(limit):
        event = _claim(_NEXT)
        if event is None:
            break
        n_done += process(event, now=now)
    return n_done


def process(event: StripeEvent, *, now: datetime | None = None) -> bool:
    """One event, outside of any transaction; whoever does it twice changes nothing."""
    try:
        _handle(event)
    except StripeUnavailable as away:
        wait = timedelta(seconds=min(3_600, 15 * 2**event.n_attempts))
        _mark(event, fault=away.code, due_at=timezone.now() + wait)
        return False
    except StripeRefused as refused:
        if event.n_attempts < MOST_ATTEMPTS and refused.status != 404:
            _mark(event, fault=refused.stripe_code, due_at=timezone.now() + timedelta(minutes=10))
            return False
        open_incident("event_not_understood", f"{event.type} {event.event_id}")
        _mark(event, fault=refused.stripe_code or refused.code, status=EventStatus.FAILED)
        return True
    _mark(event, status=EventStatus.PROCESSED, processed_at=timezone.now())
    return True


def _handle(event: StripeEvent) -> None:
    """Fetch what the event is about and bring our rows up to it."""
    subscription = ""
    if event.object_type == "subscription":
        subscription = event.object_id
    elif event.object_type == "checkout.session":
        subscription = subscriptions.checkout_session(event.object_id).subscription
    elif event.object_type == "invoice":
        subscription = _see_to_draft(event)
    if not subscription:
        return
    tenant_id = activation.apply(subscriptions.subscription(subscription))
    if tenant_id is not None:
        schedule.make_due(tenant_id)  # invoices are seen to there, in their order


def _see_to_draft(event: StripeEvent) -> str:
    """Hold a draft of a period's usage: it waits for its last hours (`settlement`). Returns its subscription."""
    invoice = invoices.invoice(event.object_id)
    if invoice.reason == "subscription_cycle" and invoice.status == "draft" and invoice.auto_advance:
        invoices.hold_draft(invoice.id, key=f"hold-{event.event_id}-{event.n_attempts}")
    return invoice.subscription


_NEXT = (
    "SELECT event_id FROM billing_stripeevent WHERE status = 'received' AND due_at <= now()"
    " ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED"
)
_THIS = (
    "SELECT event_id FROM billing_stripeevent WHERE status = 'received' AND due_at <= now() AND event_id = %s"
    " FOR UPDATE SKIP LOCKED"
)


def _do_now(event_id: str) -> bool:
    """Process one event in the request that brought it. True when it is done with, by whomever."""
    event = _claim(_THIS, event_id)
    if event is not None:
        process(event)
    return not StripeEvent.objects.filter(event_id=event_id, status=EventStatus.RECEIVED).exists()


def _claim(which: str, *params: str) -> StripeEvent | None:
    """A due event, left to us for two minutes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_stripeevent SET due_at = now() + %s, n_attempts = n_attempts + 1"
            f" WHERE event_id = ({which}) RETURNING event_id",
            [LEASE, *params],
        )
        row = cursor.fetchone()
    return None if row is None else StripeEvent.objects.get(event_id=row[0])


def _mark(event: StripeEvent, **fields: Any) -> None:
    StripeEvent.objects.filter(event_id=event.event_id, status=EventStatus.RECEIVED).update(**fields)
