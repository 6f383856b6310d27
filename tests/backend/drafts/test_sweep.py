"""The sweep: every expired row of every tenant goes, and nothing else; whoever runs it sees nothing else."""

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connection

from backend.drafts.models import Preview
from backend.tenants.isolation import tenant_scope
from tests.draft_factories import axis, expire, n_rows, store, store_label
from tests.factories import make_tenant
from workers import upkeep

pytestmark = pytest.mark.usefixtures("committed_db")
TABLES = ("drafts_source", "drafts_draft", "drafts_labeldraft")


@pytest.fixture(autouse=True)
def swept(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that other tests left is expired, and the next sweep is due."""
    monkeypatch.setattr(upkeep, "_next_sweep", 0.0)
    while upkeep.sweep_drafts():
        monkeypatch.setattr(upkeep, "_next_sweep", 0.0)
    monkeypatch.setattr(upkeep, "_next_sweep", 0.0)


def households(n: int, n_drafts: int):
    """Tenants with `n_drafts` drafts in two sources and a label draft each."""
    tenants = [make_tenant() for _ in range(n)]
    for tenant in tenants:
        store(tenant, [f"a{i}" for i in range(n_drafts - 1)])
        store(tenant, ["b"], vector=axis(1))
        store_label(tenant, "prompt", ["x"])
    return tenants


def test_every_expired_row_of_all_tenants_goes_and_no_live_one():
    old, live = households(30, 11), households(10, 11)
    for tenant in old:
        expire(tenant)
    assert upkeep.sweep_drafts() == 30 * (11 + 2 + 1) == 420
    assert [sum(n_rows(tenant, table) for tenant in old) for table in TABLES] == [0, 0, 0]
    assert [sum(n_rows(tenant, table) for tenant in live) for table in TABLES] == [20, 110, 10]


def test_a_backlog_is_swept_in_bounded_statements(monkeypatch):
    monkeypatch.setattr(upkeep, "SWEEP_ROWS", 7)
    monkeypatch.setattr(upkeep, "SWEEP_TURNS", 2)
    (tenant,) = households(1, 40)
    expire(tenant)
    rounds = 0
    while n_rows(tenant, "drafts_draft"):
        n_before = n_rows(tenant, "drafts_draft")
        upkeep.sweep_drafts()
        assert n_before - n_rows(tenant, "drafts_draft") <= 2 * 40, "at most what hangs under the sources of two turns"
        rounds += 1
        assert rounds < 10


def test_it_is_due_once_a_minute_and_at_once_while_there_is_more(monkeypatch):
    monkeypatch.setattr(upkeep, "SWEEP_ROWS", 5)
    monkeypatch.setattr(upkeep, "SWEEP_TURNS", 1)
    tenant = make_tenant()
    for n in range(12):
        store(tenant, ["a"], vector=axis(n))
    expire(tenant)
    # a source takes its drafts along, so that the later rounds may count fewer
    swept = [upkeep.sweep_drafts() for _ in range(3)]
    assert swept[0] == 10
    assert all(0 < n <= 10 for n in swept)
    assert n_rows(tenant, "drafts_draft") == n_rows(tenant, "drafts_source") == 0
    (another,) = households(1, 3)
    expire(another)
    assert upkeep.sweep_drafts() == 0, "not due"
    monkeypatch.setattr(upkeep, "_next_sweep", 0.0)
    assert upkeep.sweep_drafts() > 0


def test_a_round_of_upkeep_sweeps():
    (tenant,) = households(1, 3)
    expire(tenant)
    upkeep.tick(may_expire=False)
    assert n_rows(tenant, "drafts_draft") == 0


def test_an_old_preview_goes_too():
    tenant = make_tenant()
    with tenant_scope(tenant.id):
        old = Preview.objects.create(tenant_id=tenant.id, spec={"name": "x"})
        Preview.objects.create(tenant_id=tenant.id, spec={"name": "y"})
        Preview.objects.filter(id=old.id).update(created_at="2020-01-01T00:00Z")
    assert upkeep.sweep_drafts() == 1
    assert n_rows(tenant, "drafts_preview") == 1


def test_the_owner_itself_sees_expired_rows_alone(embedded_services):
    """As whom the function runs; to begin with, and with each table by itself."""
    (tenant,) = households(1, 6)
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE drafts_draft SET expires_at = now() - interval '1 h' WHERE tenant_id = %s AND id IN"
            " (SELECT id FROM drafts_draft ORDER BY id LIMIT 2)",
            [tenant.id],
        )
    address = embedded_services.env["DATABASE_OWNER_URL"]
    with psycopg.connect(address, dbname=django_settings.DATABASES["default"]["NAME"]) as owner:
        seen = {table: owner.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
        deleted = owner.execute("DELETE FROM drafts_draft").rowcount
        owner.rollback()
    assert seen == {"drafts_source": 0, "drafts_draft": 2, "drafts_labeldraft": 0}
    assert deleted == 2
    assert upkeep.sweep_drafts() == 2


def test_the_apps_role_cannot_widen_what_the_sweep_deletes():
    """The function runs as the owner; a tenant of one's own choice in the settings shows it no row to delete."""
    mine, theirs = households(2, 3)
    with tenant_scope(mine.id), connection.cursor() as cursor:
        cursor.execute("SELECT kolm_sweep_drafts(1000)")
        assert cursor.fetchone() == (0,)
    assert [n_rows(tenant, "drafts_draft") for tenant in (mine, theirs)] == [3, 3]
