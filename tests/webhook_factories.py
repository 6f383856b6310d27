"""Endpoints, events and a sender, for tests of webhooks."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection

from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.usage.accounts import set_plan
from backend.webhooks import endpoints
from backend.webhooks.emit import emit
from backend.webhooks.models import WebhookDelivery, WebhookEndpoint, WebhookEvent


def make_endpoint(tenant: Tenant, url: str, *, events: tuple[str, ...] = ("*",), **fields: Any) -> WebhookEndpoint:
    return make_endpoint_with_secret(tenant, url, events=events, **fields)[0]


def make_endpoint_with_secret(
    tenant: Tenant, url: str, *, events: tuple[str, ...] = ("*",), **fields: Any
) -> tuple[WebhookEndpoint, str]:
    with tenant_scope(tenant.id):
        set_plan(tenant.id, "enterprise", actor=SYSTEM)  # any number of endpoints
    return endpoints.create(tenant.id, url=url, events=list(events), actor=SYSTEM, **fields)


def make_event(tenant: Tenant, type: str = "compile.succeeded", **object: Any) -> WebhookEvent:
    with tenant_scope(tenant.id):
        return emit(tenant.id, type, {"object": {"object": "compile"} | object})


def deliveries_of(tenant: Tenant) -> list[WebhookDelivery]:
    with tenant_scope(tenant.id):
        return list(
            WebhookDelivery.objects.of_tenant(tenant.id).select_related("event", "endpoint").order_by("created_at")
        )


@contextmanager
def sending() -> Iterator[None]:
    """The sender's own loop, in a thread, as the process runs it."""
    from workers.deliveries import Sender

    stop = threading.Event()
    thread = threading.Thread(target=Sender().run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def eventually(claim: Callable[[], object], *, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not claim():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def pass_time(tenant: Tenant, gone: timedelta) -> None:
    """As if that much time had passed for the tenant's webhooks: all their times move into the past."""
    columns = {
        "webhooks_deliverydue": ("due_at",),
        "webhooks_webhookdelivery": ("created_at", "next_at", "ended_at"),
        "webhooks_webhookattempt": ("created_at",),
        "webhooks_webhookevent": ("created_at",),
        "webhooks_webhookendpoint": (
            "created_at",
            "failing_since",
            "clock_since",
            "last_success_at",
            "replayed_at",
            "old_secret_until",
            "disabled_at",
        ),
    }
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        for table, names in columns.items():
            changes = ", ".join(f"{name} = {name} - %(gone)s" for name in names)
            cursor.execute(f"UPDATE {table} SET {changes} WHERE tenant_id = %(id)s", {"gone": gone, "id": tenant.id})
