"""A purge beside admissions: each comes wholly before or wholly after the other, and what is left opens."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from django.db import connection

from backend.drafts.cache import find_scope, nearest_drafts
from backend.drafts.models import Draft, Scope, Source
from backend.drafts.purging import purge_family
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.draft_factories import SCOPE, axis, n_rows, store
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")
TABLES = ("familykey", "scope", "source", "draft")


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    return make_tenant()


def offered(tenant: Tenant) -> list[str]:
    """Raises where a draft does not open."""
    with tenant_scope(tenant.id):
        scope = find_scope(tenant.id, SCOPE)
        found = [] if scope is None else nearest_drafts(tenant.id, scope, [axis(0)], n_sources=50, seed=0)[0]
    return sorted(draft.text for source in found for draft in source.drafts)


@pytest.mark.parametrize("before", [["before"], []], ids=["of a family with a key", "of a family with none yet"])
def test_a_purge_waits_for_an_admission_under_way_and_takes_it_along(tenant, before):
    store(tenant, before)
    admitted, go_on = Event(), Event()

    def admit_slowly() -> None:
        with tenant_scope(tenant.id):
            store(tenant, ["under way"], vector=axis(1))
            admitted.set()
            assert go_on.wait(10)
        connection.close()

    def purge() -> int:
        n_drafts = purge_family(tenant.id, SCOPE.family).n_drafts
        connection.close()
        return n_drafts

    with ThreadPoolExecutor(2) as threads:
        admission = threads.submit(admit_slowly)
        assert admitted.wait(10)
        purged = threads.submit(purge)
        time.sleep(0.3)
        assert not purged.done(), "it waits for the family's key"
        go_on.set()
        admission.result()
        assert purged.result() == len(before) + 1
    assert [n_rows(tenant, f"drafts_{name}") for name in TABLES] == [0, 0, 0, 0]


def test_an_admission_that_finds_its_key_purged_makes_a_new_one(tenant):
    store(tenant, ["before"])
    purging, go_on = Event(), Event()

    def purge_slowly() -> None:
        with tenant_scope(tenant.id):
            purge_family(tenant.id, SCOPE.family)
            purging.set()
            assert go_on.wait(10)
        connection.close()

    def admit() -> None:
        store(tenant, ["after"])
        connection.close()

    with ThreadPoolExecutor(2) as threads:
        purged = threads.submit(purge_slowly)
        assert purging.wait(10)
        admission = threads.submit(admit)
        time.sleep(0.3)
        go_on.set()
        purged.result()
        admission.result()
    assert offered(tenant) == ["after"]


def test_admissions_and_purges_in_any_order_leave_only_what_opens(tenant):
    def admit(n: int) -> None:
        for i in range(15):
            store(tenant, [f"text {n}.{i}"], vector=axis(n))
        connection.close()

    def purge(_: int) -> None:
        for _ in range(15):
            purge_family(tenant.id, SCOPE.family)
            offered(tenant)
        connection.close()

    with ThreadPoolExecutor(5) as threads:
        done = [threads.submit(admit, n) for n in range(3)] + [threads.submit(purge, n) for n in range(2)]
        for each in done:
            each.result()
    with tenant_scope(tenant.id):
        scopes = set(Scope.objects.values_list("id", flat=True))
        assert set(Source.objects.values_list("scope_id", flat=True)) <= scopes, "none without its scope"
        n_drafts = Draft.objects.count()
    assert len(offered(tenant)) == n_drafts, "none that nobody can open"
    purge_family(tenant.id, SCOPE.family)
    assert [n_rows(tenant, f"drafts_{name}") for name in TABLES] == [0, 0, 0, 0]
