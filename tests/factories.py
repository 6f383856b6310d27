"""Rows for tests, tenant first: each with the one field that matters."""

import os
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from uuid import UUID

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User

from backend.domain.money import plans
from backend.domain.roles import Role
from backend.rest.new_ids import new_uuid7
from backend.tenants.api_keys import issuing
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Member, Tenant
from backend.tenants.permissions import ALL_SCOPES
from backend.usage.models import Account

PASSWORD = "correct horse battery"


def make_tenant(name: str = "Acme", *, plan: str = "enterprise") -> Tenant:
    """Without a spend cap, unless the test is about one and names another plan."""
    tenant = Tenant(id=new_uuid7(), name=name)
    with tenant_scope(tenant.id):
        tenant.save(force_insert=True)
        cap = plans.plan(plan).cap_default_microusd
        Account.objects.filter(tenant_id=tenant.id).update(plan=plan, cap_microusd=cap)
    return tenant


def make_api_key(tenant: Tenant | UUID, *, scopes: Sequence[str] = ALL_SCOPES, name: str = "test") -> str:
    """The secret of a new key; `bearer` makes the header of it."""
    tenant_id = tenant if isinstance(tenant, UUID) else tenant.id
    with tenant_scope(tenant_id):
        return issuing.issue(tenant_id, name=name, scopes=scopes, is_live=False)[1]


def bearer(secret: str) -> dict[str, str]:
    """For `client.get(path, headers=bearer(secret))`."""
    return {"Authorization": f"Bearer {secret}"}


def make_member(
    tenant: Tenant | UUID, role: Role = Role.OWNER, email: str | None = None, password: str = PASSWORD
) -> User:
    """A person with a verified address who is a member of the tenant in this role; `client.force_login(user)` opens
    the console. A person who is there already (the same address) becomes a member of one more."""
    tenant_id = tenant if isinstance(tenant, UUID) else tenant.id
    address = email or f"{role.value}-{new_uuid7().hex[-12:]}@example.com"
    user = User.objects.filter(username=address).first()
    if user is None:
        user = User(username=address, email=address, password=_hashed(password))
        user.save(force_insert=True)
        EmailAddress.objects.create(user=user, email=address, verified=True, primary=True)
    with tenant_scope(tenant_id):
        Member.objects.create(tenant_id=tenant_id, user=user, role=role)
    return user


@cache
def _hashed(password: str) -> str:
    return make_password(password)  # argon2 takes its time, once a password


def age_blobs(tenant_id: UUID) -> None:
    """As if all the tenant's blobs had been stored an hour ago: sweeps leave those of the last minutes alone."""
    past = time.time() - 3600
    for path in (Path(settings.KOLM_BLOB_DIR) / str(tenant_id)).glob("??/*"):
        os.utime(path, (past, past))
