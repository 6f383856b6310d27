"""Endpoints: made, changed, rolled, disabled, deleted. What their senders do with them is in `deliveries`."""

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backend.domain.errors import Conflict, InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.plans import Entitlement, check_entitlement
from backend.domain.webhooks.events import EventType
from backend.tenants import audit
from backend.tenants.actors import SYSTEM, Actor
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.tenants.team.seats import plan_of
from backend.webhooks.emit import emit
from backend.webhooks.models import (
    DeliveryDue,
    DeliveryStatus,
    DisabledReason,
    EndpointStatus,
    WebhookDelivery,
    WebhookEndpoint,
)
from backend.webhooks.secrets import make_secret, signing_secrets
from backend.webhooks.shapes import EndpointShape

MAX_OVERLAP_S = 7 * 86_400
DEFAULT_OVERLAP_S = 86_400
MAX_ENDPOINTS = 50  # whatever the plan: an event is written once for each


def create(
    tenant_id: UUID, *, url: str, events: list[str], description: str = "", signature: str = "v1", actor: Actor
) -> tuple[WebhookEndpoint, str]:
    """The endpoint and its secret. Raises InvalidInput for a URL that is not called from here, PaymentRequired where
    the plan allows no more."""
    check_url_text(url)
    with tenant_scope(tenant_id):
        Tenant.objects.select_for_update().get(id=tenant_id)  # two at once cannot both take the last place
        n_used = WebhookEndpoint.objects.of_tenant(tenant_id).filter(deleted_at=None).count()
        check_entitlement(plan_of(tenant_id), Entitlement.WEBHOOK_ENDPOINTS, n_used)
        if n_used >= MAX_ENDPOINTS:
            raise Conflict(f"There are {n_used} endpoints, the limit; delete one first.", code="too_many_endpoints")
        row = WebhookEndpoint(tenant_id=tenant_id, url=url, events=events, description=description, signature=signature)
        secret = make_secret(row)
        row.save(force_insert=True)
        _note(row, actor, "created", {"url": url, "events": events})
        return row, secret


def update(
    tenant_id: UUID,
    endpoint_id: UUID,
    *,
    actor: Actor,
    url: str | None = None,
    events: list[str] | None = None,
    description: str | None = None,
) -> WebhookEndpoint:
    """Change what is given. What is pending goes to the new URL. Raises NotFound, InvalidInput."""
    if url is not None:
        check_url_text(url)
    with tenant_scope(tenant_id):
        row = find(tenant_id, endpoint_id, lock=True)
        values = {"url": url, "events": events, "description": description}
        changes = {name: value for name, value in values.items() if value is not None}
        for name, value in changes.items():
            setattr(row, name, value)
        row.save()
        _note(row, actor, "changed", changes)
        return row


def roll(tenant_id: UUID, endpoint_id: UUID, *, overlap_s: int, actor: Actor) -> tuple[WebhookEndpoint, str]:
    """A new secret. For `overlap_s` (0 to 7 days) both sign, so that receivers can change in their own time."""
    with tenant_scope(tenant_id):
        row = find(tenant_id, endpoint_id, lock=True)
        row.old_secret = bytes(row.secret) if overlap_s else None
        row.old_secret_until = timezone.now() + timedelta(seconds=overlap_s) if overlap_s else None
        secret = make_secret(row)
        row.save()
        _note(row, actor, "secret_rolled", {"overlap_s": overlap_s})
        return row, secret


def reveal(tenant_id: UUID, endpoint_id: UUID, *, actor: Actor) -> tuple[WebhookEndpoint, str]:
    """The secret once more; the audit log says who looked."""
    with tenant_scope(tenant_id):
        row = find(tenant_id, endpoint_id)
        secret = signing_secrets(row, timezone.now())[0]
        _note(row, actor, "secret_revealed", {})
        return row, secret


def set_enabled(tenant_id: UUID, endpoint_id: UUID, *, enabled: bool, actor: Actor) -> WebhookEndpoint:
    """Enabling forgets the failures so far; what was missed is sent by a replay. Disabling cancels what is pending."""
    with tenant_scope(tenant_id):
        row = find(tenant_id, endpoint_id, lock=True)
        if enabled == (row.status == EndpointStatus.ENABLED):
            return row
        if enabled:
            row.status, row.disabled_reason, row.disabled_at = EndpointStatus.ENABLED, "", None
            row.failing_since = row.clock_since = None
            row.save()
        else:
            disable(row, DisabledReason.REQUESTED)
        _note(row, actor, "enabled" if enabled else "disabled", {})
        return row


def disable(row: WebhookEndpoint, reason: DisabledReason) -> None:
    """Disable an endpoint under the row's lock. Where it was not asked for, the tenant's other endpoints are
    notified."""
    row.status, row.disabled_reason, row.disabled_at = EndpointStatus.DISABLED, reason, timezone.now()
    row.save(update_fields=["status", "disabled_reason", "disabled_at"])
    cancel_pending(row)
    if reason == DisabledReason.REQUESTED:
        return
    shape = EndpointShape.of(row)
    summary = {name: shape[name] for name in ("id", "object", "url", "status", "disabled_reason", "disabled_at")}
    emit(row.tenant_id, EventType.ENDPOINT_DISABLED, {"object": summary}, but_not=row.id)
    _note(row, SYSTEM, "disabled", {"reason": reason.value})


def delete(tenant_id: UUID, endpoint_id: UUID, *, actor: Actor) -> WebhookEndpoint:
    """Delete the endpoint: what is pending is canceled, the secrets are destroyed. Its log stays for as long as
    logs do."""
    with tenant_scope(tenant_id):
        row = find(tenant_id, endpoint_id, lock=True)
        row.deleted_at = timezone.now()
        row.status, row.secret, row.old_secret, row.old_secret_until = EndpointStatus.DISABLED, b"", None, None
        row.save()
        cancel_pending(row, with_tests=True)
        _note(row, actor, "deleted", {"url": row.url})
        return row


def cancel_pending(row: WebhookEndpoint, ids: Iterable[UUID] | None = None, *, with_tests: bool = False) -> int:
    """End what is still to be sent to an endpoint that takes no more, in the caller's transaction."""
    deliveries = WebhookDelivery.objects.of_tenant(row.tenant_id).filter(
        endpoint_id=row.id, status=DeliveryStatus.PENDING
    )
    if ids is not None:
        deliveries = deliveries.filter(id__in=list(ids))
    elif not with_tests:
        deliveries = deliveries.filter(is_test=False)
    pending = list(deliveries.select_for_update(no_key=True).values_list("id", flat=True))
    WebhookDelivery.objects.of_tenant(row.tenant_id).filter(id__in=pending).update(
        status=DeliveryStatus.CANCELED, ended_at=timezone.now(), next_at=None
    )
    DeliveryDue.objects.filter(delivery_id__in=pending).delete()
    return len(pending)


def find(tenant_id: UUID, endpoint_id: UUID, *, lock: bool = False) -> WebhookEndpoint:
    """Raises NotFound, for a deleted one too. Not FOR UPDATE: that would hold up every event, whose deliveries refer to
    the row."""
    rows = WebhookEndpoint.objects.of_tenant(tenant_id).filter(deleted_at=None)
    row = (rows.select_for_update(no_key=True) if lock else rows).filter(id=endpoint_id).first()
    if row is None:
        raise NotFound("There is no such webhook endpoint.")
    return row


def check_url_text(url: str) -> None:
    """Check a URL by its text alone: a transaction is open and must not wait for DNS. What a name resolves to is judged
    on every connection. Raises InvalidInput."""
    from backend.outbound import OutboundRefused, check_url  # brings httpx, which a web process may never need

    try:
        check_url(url, allowed_origins=settings.KOLM_ALLOW_PRIVATE_WEBHOOKS)
    except OutboundRefused as refused:
        problem = Problem(pointer="/url", message=refused.message, code=refused.code)
        raise InvalidInput(refused.message, code=refused.code, problems=(problem,)) from None


def _note(row: WebhookEndpoint, actor: Actor, verb: str, data: dict[str, object]) -> None:
    target = encode_id(Prefix.WEBHOOK_ENDPOINT, row.id)
    audit.note(row.tenant_id, actor=actor, action=f"webhook_endpoint.{verb}", target=target, data=data)
