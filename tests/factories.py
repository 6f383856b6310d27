"""Rows for tests, tenant first: each with the one field that matters."""

from collections.abc import Sequence
from uuid import UUID

from backend.rest.new_ids import new_uuid7
from backend.tenants import keys
from backend.tenants.models import Tenant
from backend.tenants.scope import tenant_scope
from backend.tenants.scopes import ALL_SCOPES


def make_tenant(name: str = "Acme") -> Tenant:
    tenant = Tenant(id=new_uuid7(), name=name)
    with tenant_scope(tenant.id):
        tenant.save(force_insert=True)
    return tenant


def make_api_key(tenant: Tenant | UUID, *, scopes: Sequence[str] = ALL_SCOPES, name: str = "test") -> str:
    """The secret of a new key; `bearer` makes the header of it."""
    tenant_id = tenant if isinstance(tenant, UUID) else tenant.id
    with tenant_scope(tenant_id):
        return keys.issue(tenant_id, name=name, scopes=scopes, is_live=False)[1]


def bearer(secret: str) -> dict[str, str]:
    """For `client.get(path, headers=bearer(secret))`."""
    return {"Authorization": f"Bearer {secret}"}
