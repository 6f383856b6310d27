"""Celery tasks of billing: hints. One that is lost or doubled changes nothing; upkeep gives it again."""

from uuid import UUID

from celery import shared_task
from django.db import close_old_connections

from backend.billing import cycle, stripe_events
from backend.queue import TaskName


@shared_task(name=TaskName.BILLING_EVENTS.value, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]
def process_events() -> None:
    """Process what Stripe has told us."""
    close_old_connections()
    try:
        stripe_events.process_due()
    finally:
        close_old_connections()


@shared_task(name=TaskName.BILLING_TURN.value, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]
def take_turn(tenant_id: str) -> None:
    """Look at one tenant's books."""
    close_old_connections()
    try:
        cycle.run_cycle(UUID(tenant_id))
    finally:
        close_old_connections()
