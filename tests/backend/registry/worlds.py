"""Tenants that contribute to the registry, and what they contribute."""

from datetime import UTC, datetime

from django.utils import timezone

from backend.domain.recipes.registry.structural import Structure, structural
from backend.registry.contributing import contribute
from backend.tenants.models import Tenant
from tests.factories import make_member, make_tenant

KEY_NEXT = "json d1 key #1 | STR : STR ,"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

Place = tuple[str, str]


def structures(*places: Place) -> list[Structure]:
    """Of `(shape, run)`, which are structure."""
    found = [structural(shape, run) for shape, run in places]
    assert [one and (one.shape, one.run) for one in found] == list(places)
    return [one for one in found if one is not None]


def contributor(*places: Place, email: str | None = None, tenant: Tenant | None = None) -> Tenant:
    """A tenant that put these in; with one person, of a mail domain that is nobody else's unless it is given."""
    if tenant is None:
        tenant = make_tenant()
        make_member(tenant, email=email or f"owner@{tenant.id.hex[-12:]}.example")
    contribute(tenant.id, structures(*places), submitted_at=timezone.now())
    return tenant


def contributors(n: int, *places: Place) -> list[Tenant]:
    return [contributor(*places) for _ in range(n)]
