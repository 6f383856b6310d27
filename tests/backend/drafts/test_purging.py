"""Purging: a family goes with its key, a draft with its descendants, a tenant with all; nobody else's row goes."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from backend.domain.drafts.vocabulary import Strategy
from backend.domain.ids import Prefix, encode_id
from backend.drafts.cache import find_scope, nearest_drafts
from backend.drafts.models import Calibration, Draft, Preview, Source
from backend.drafts.purging import Purged, delete_draft, purge_family, purge_tenant
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.draft_factories import SCOPE, admitted, axis, n_rows, of_family, store, store_label, write_verdict
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")
TABLES = ("familykey", "scope", "source", "draft", "labeldraft", "calibration", "preview")


def counts(tenant: Tenant) -> list[int]:
    return [n_rows(tenant, f"drafts_{table}") for table in TABLES]


def fill(tenant: Tenant, family: str) -> None:
    for n in range(3):
        store(tenant, [f"{family} {n} {i}" for i in range(4)], scope=of_family(family), vector=axis(n))
    store_label(tenant, "prompt", ["a"], family=family)
    with tenant_scope(tenant.id):
        scope = find_scope(tenant.id, of_family(family))
        Calibration.objects.create(
            tenant_id=tenant.id, scope=scope, strategy=Strategy.JUDGE, grid_version=1, log_posterior=b""
        )
        Preview.objects.create(tenant_id=tenant.id, spec={"name": family, "task": "text"})


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    tenant = make_tenant()
    fill(tenant, "router")
    fill(tenant, "other")
    return tenant


def texts(tenant: Tenant, family: str) -> list[str]:
    with tenant_scope(tenant.id):
        scope = find_scope(tenant.id, of_family(family))
        found = [] if scope is None else nearest_drafts(tenant.id, scope, [axis(0)], n_sources=9, seed=0)[0]
    return [draft.text for source in found for draft in source.drafts]


def test_a_family_goes_with_its_key_and_the_others_stay(tenant):
    neighbour = make_tenant()
    fill(neighbour, "router")
    purged = purge_family(tenant.id, "router")
    assert purged == Purged(
        n_keys=1, n_scopes=2, n_sources=3, n_drafts=12, n_label_drafts=1, n_calibrations=1, n_previews=1
    )
    assert counts(tenant) == counts(neighbour) == [1, 2, 3, 12, 1, 1, 1]
    assert texts(tenant, "router") == []
    assert len(texts(tenant, "other")) == len(texts(neighbour, "router")) == 12
    assert purge_family(tenant.id, "router") == Purged()
    assert purge_family(tenant.id, "never heard of") == Purged()


def test_a_tenant_goes_whole(tenant):
    assert purge_tenant(tenant.id).n_drafts == 24
    assert counts(tenant) == [0] * 7


def test_more_sources_than_a_batch_go(tenant, monkeypatch):
    monkeypatch.setattr("backend.drafts.purging.BATCH", 2)
    assert purge_family(tenant.id, "router").n_sources == 3


def test_the_logs_stay(tenant):
    with tenant_scope(tenant.id):
        scope = find_scope(tenant.id, SCOPE)
        (source,) = nearest_drafts(tenant.id, scope, [axis(0)], n_sources=1, seed=0)[0]
    write_verdict(tenant, source.drafts[0])
    purge_tenant(tenant.id)
    assert n_rows(tenant, "drafts_verdict") == 1


def test_another_tenants_family_or_draft_cannot_be_purged(tenant):
    before = counts(tenant)
    stranger = make_tenant()
    with tenant_scope(tenant.id):
        draft_id = Draft.objects.first().id
    assert purge_family(stranger.id, "router") == Purged()
    assert delete_draft(stranger.id, draft_id) == 0
    assert counts(tenant) == before


def test_a_draft_goes_with_everything_that_began_as_it_and_with_a_source_that_is_empty(tenant):
    with tenant_scope(tenant.id):
        root = Draft.objects.order_by("id").first()
    store(tenant, [admitted("child", root_id=root.id), "sibling"], vector=axis(7))
    alone = store(tenant, [admitted("only child", root_id=root.id)], vector=axis(8))
    assert delete_draft(tenant.id, root.id) == 3
    assert delete_draft(tenant.id, root.id) == 0
    with tenant_scope(tenant.id):
        assert not Source.objects.filter(id=alone).exists()
        assert Source.objects.filter(id=root.source_id).exists()
    found = texts(tenant, "router")
    assert ("sibling" in found, "child" in found, "only child" in found) == (True, False, False)


def test_a_family_that_is_purged_and_filled_again_has_a_new_key_and_opens(tenant):
    purge_family(tenant.id, "router")
    store(tenant, ["new"])
    assert texts(tenant, "router") == ["new"]


def test_the_command_purges_and_says_what(tenant):
    name, printed = encode_id(Prefix.TENANT, tenant.id), StringIO()
    call_command("purge_drafts", "--tenant", name, "--family", "router", stdout=printed)
    assert "n_drafts: 12" in printed.getvalue()
    call_command("purge_drafts", "--tenant", name, "--all", "--json", stdout=printed)
    assert counts(tenant) == [0] * 7
    with pytest.raises(CommandError):
        call_command("purge_drafts", "--tenant", name)


@pytest.mark.nightly
def test_a_million_rows_would_not_outlive_the_token_of_the_transaction(tenant, monkeypatch):
    """The tenant is set anew for each batch."""
    from backend.drafts import purging

    monkeypatch.setattr("backend.tenants.isolation.TOKEN_TTL_S", 4)
    monkeypatch.setattr(purging, "BATCH", 1)
    slow = purging._ids_of_sources

    def slowly(*args):
        with connection.cursor() as cursor:
            purging.set_tenant(tenant.id)
            found = slow(*args)
            cursor.execute("SELECT pg_sleep(1.6)")
        return found

    monkeypatch.setattr(purging, "_ids_of_sources", slowly)
    assert purge_family(tenant.id, "router").n_sources == 3
