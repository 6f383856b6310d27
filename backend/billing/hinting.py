"""What upkeep does for billing: tell the workers whose books to look at and that Stripe has said something."""

import time

from django.utils import timezone

from backend.billing import cycle
from backend.billing.models import EventStatus, StripeEvent
from backend.queue import TaskName, enqueue

EVENTS_EVERY_S = 5.0
_next_events = 0.0


def hint_billing() -> int:
    """Returns how many hints went out. One that is lost is given again some minutes later."""
    global _next_events
    n_hints = 0
    for tenant_id in cycle.due():
        n_hints += enqueue(TaskName.BILLING_TURN, tenant_id=str(tenant_id))
    if time.monotonic() >= _next_events:
        _next_events = time.monotonic() + EVENTS_EVERY_S
        waiting = StripeEvent.objects.filter(status=EventStatus.RECEIVED, due_at__lte=timezone.now())
        if waiting.exists():
            n_hints += enqueue(TaskName.BILLING_EVENTS)
    return n_hints
