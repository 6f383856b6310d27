"""The wall across real commits, connections that are used again, and threads."""

from concurrent.futures import ThreadPoolExecutor
from random import Random
from uuid import UUID, uuid4

import pytest
from django.db import ProgrammingError, connection, transaction

from backend.tenants.isolation import set_tenant, tenant_scope
from backend.tenants.models import ApiKey
from tests.factories import make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


def visible_keys() -> set[UUID]:
    return set(ApiKey.objects.values_list("tenant_id", flat=True))


def test_a_connection_that_never_had_a_tenant_raises():
    make_api_key(make_tenant())
    connection.close()
    connection.close_pool()
    with pytest.raises(ProgrammingError, match=r"app\.tenant"):
        list(ApiKey.objects.all())


def test_after_the_transaction_the_tenant_is_gone_from_the_connection():
    tenant = make_tenant()
    make_api_key(tenant)
    with tenant_scope(tenant.id):
        assert visible_keys() == {tenant.id}
    with pytest.raises(ProgrammingError, match="no tenant is set"):
        list(ApiKey.objects.all())


def test_a_tenant_is_set_for_a_transaction_or_not_at_all():
    with pytest.raises(transaction.TransactionManagementError):
        set_tenant(uuid4())


def test_many_threads_on_pooled_connections_never_see_another_tenant():
    tenants = [make_tenant(str(i)).id for i in range(8)]
    for tenant_id in tenants:
        make_api_key(tenant_id)

    def visit(seed: int) -> int:
        rng = Random(seed)
        foreign = 0
        for _ in range(25):
            tenant_id = rng.choice(tenants)
            try:
                with tenant_scope(tenant_id):
                    foreign += visible_keys() != {tenant_id}
                    if rng.random() < 0.3:
                        raise RuntimeError
            except RuntimeError:
                pass
            try:
                visible_keys()
                foreign += 1
            except ProgrammingError:
                pass
        connection.close()
        return foreign

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(visit, range(16))) == 0
