"""The two parties of an invoice: the tenant's billing details, and the seller by the operator's settings."""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings

from backend.billing.models import BillingDetails
from backend.domain.errors import InvalidInput, Problem
from backend.domain.ids import Prefix, encode_id
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.models import Tenant

MOST = {"name": 200, "address": 500, "vat_id": 40}
MOST_LINES = 8


def details_of(tenant_id: UUID) -> BillingDetails:
    """The tenant's details; empty ones, which are no row yet, where it gave none."""
    row = BillingDetails.objects.of_tenant(tenant_id).first()
    return row or BillingDetails(tenant_id=tenant_id)


def change_details(tenant_id: UUID, changes: dict[str, str], *, actor: Actor) -> BillingDetails:
    """Keep other details, for the invoices to come. Raises InvalidInput."""
    row = details_of(tenant_id)
    for name, text in changes.items():
        setattr(row, name, _clean(name, text))
    fields = {name: getattr(row, name) for name in MOST}
    row, _ = BillingDetails.objects.of_tenant(tenant_id).update_or_create(tenant_id=tenant_id, defaults=fields)
    # an address is a person's: the log has what changed, not what it became
    target, data = encode_id(Prefix.TENANT, tenant_id), {"fields": sorted(changes)}
    audit.note(tenant_id, actor=actor, action="billing_details.changed", target=target, data=data)
    return row


def parties(tenant_id: UUID) -> dict[str, dict[str, str]]:
    """Seller and customer as they are now, for an invoice to keep."""
    row = details_of(tenant_id)
    team = Tenant.objects.values_list("name", flat=True).get(id=tenant_id)
    customer = {"name": row.name or team, "address": row.address, "vat_id": row.vat_id}
    return {"seller": seller(), "customer": {name: text for name, text in customer.items() if text}}


def seller() -> dict[str, str]:
    """Return who issues invoices here; by the address of this installation where its operator did not say."""
    named: dict[str, str] = settings.KOLM_SELLER
    return named if named.get("name") else {**named, "name": urlsplit(settings.KOLM_PUBLIC_URL).hostname or "kolm"}


def _clean(name: str, text: Any) -> str:
    lines = [" ".join(line.split()) for line in str(text).replace("\r\n", "\n").strip().split("\n")]
    cleaned = "\n".join(lines)
    fault = ""
    if len(cleaned) > MOST[name]:
        fault = f"has more than {MOST[name]} characters"
    elif len(lines) > (MOST_LINES if name == "address" else 1):
        fault = f"has more than {MOST_LINES if name == 'address' else 1} lines"
    elif not all(line.isprintable() for line in lines):
        fault = "has characters that cannot be printed, such as marks of direction"
    if fault:
        message = f"`{name}` {fault}; shorten or mend it."
        raise InvalidInput(message, problems=(Problem(pointer=f"/{name}", message=message),))
    return cleaned
