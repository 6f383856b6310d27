"""The second wall: what Postgres itself refuses, whatever a query asks."""

import time
from uuid import UUID, uuid4

import pytest
from django.apps import apps
from django.db import ProgrammingError, connection, transaction
from django.db.utils import InternalError

from backend.tenants.api_keys.key_format import hash_of
from backend.tenants.isolation import TenantOwned, read_local, set_local, tenant_scope, tenant_token
from backend.tenants.models import ApiKey, Tenant
from tests.factories import make_api_key, make_tenant

pytestmark = pytest.mark.django_db

SHARED = {"runner_jobs_runnerjob"}  # tenant-owned in name, read by processes that serve all tenants: see its migration


def visible_keys() -> set[UUID]:
    return set(ApiKey.objects.values_list("tenant_id", flat=True))


def raises_unless_a_tenant_is_set() -> None:
    with pytest.raises(ProgrammingError), transaction.atomic():
        list(ApiKey.objects.all())


@pytest.fixture
def two() -> tuple[Tenant, Tenant]:
    tenants = make_tenant("a"), make_tenant("b")
    for tenant in tenants:
        make_api_key(tenant)
    return tenants


def test_the_tests_run_as_the_role_of_production():
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == ("kolm_app", False, False)


def test_a_tenant_sees_its_own_rows_without_a_filter(two):
    for tenant in two:
        with tenant_scope(tenant.id):
            assert visible_keys() == {tenant.id}
            assert list(Tenant.objects.values_list("id", flat=True)) == [tenant.id]


def test_without_a_tenant_a_query_raises(two):
    raises_unless_a_tenant_is_set()


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda t: str(t), id="the bare id"),
        pytest.param(lambda t: f"{t}.9999999999", id="no signature"),
        pytest.param(lambda t: f"{t}.9999999999.{'0' * 64}", id="a made-up signature"),
        pytest.param(lambda t: str(t) + tenant_token(uuid4())[36:], id="another tenant's signature"),
        pytest.param(lambda t: tenant_token(t).upper(), id="upper case"),
        pytest.param(lambda t: tenant_token(t) + "\n", id="a line break after it"),
        pytest.param(lambda t: " " + tenant_token(t), id="a space before it"),
        pytest.param(lambda t: tenant_token(t)[:-1], id="cut short"),
        pytest.param(lambda t: tenant_token(t, expires_at=int(time.time()) - 1), id="expired"),
        pytest.param(lambda t: "", id="empty"),
        pytest.param(lambda t: "' OR true --", id="an injection"),
    ],
)
def test_a_token_that_is_not_ours_raises(two, forge):
    set_local("app.tenant", forge(two[0].id))
    raises_unless_a_tenant_is_set()


def test_a_longer_life_cannot_be_written_into_a_token(two):
    tenant, expiry, signature = tenant_token(two[0].id).split(".")
    set_local("app.tenant", f"{tenant}.{int(expiry) + 1}.{signature}")
    raises_unless_a_tenant_is_set()


def test_injected_sql_cannot_switch_the_tenant(two):
    mine, other = two
    with tenant_scope(mine.id), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.tenant', %s, true)", [str(other.id)])
        with pytest.raises(ProgrammingError), transaction.atomic():
            visible_keys()


def test_a_row_cannot_be_written_for_another_tenant(two):
    mine, other = two
    with tenant_scope(mine.id):
        with pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
            ApiKey.objects.create(
                tenant_id=other.id, name="x", key_hash="0" * 64, prefix="", last4="", is_live=True, scopes=[]
            )
        assert ApiKey.objects.filter(tenant_id=other.id).update(name="taken") == 0
        assert ApiKey.objects.filter(tenant_id=other.id).delete()[0] == 0
        with pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
            ApiKey.objects.filter(tenant_id=mine.id).update(tenant_id=other.id)


def test_the_hash_of_a_key_shows_that_one_row_and_lets_nothing_be_written(two):
    secret = make_api_key(two[0])
    set_local("app.key_hash", hash_of(secret))
    assert ApiKey.objects.get().key_hash == hash_of(secret)
    with pytest.raises(ProgrammingError), transaction.atomic():
        ApiKey.objects.update(name="taken")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM kolm_tenant_key",
        "INSERT INTO kolm_tenant_key (ipad, opad) VALUES ('', '')",
        "UPDATE kolm_tenant_key SET ipad = ''",
        "DELETE FROM kolm_tenant_key",
        "DROP TABLE kolm_tenant_key",
        "ALTER TABLE tenants_apikey DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE tenants_apikey NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON tenants_tenant",
        "CREATE POLICY mine ON tenants_tenant USING (true)",
        "CREATE OR REPLACE FUNCTION kolm_tenant() RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'",
        "CREATE FUNCTION public.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TABLE public.mine (x int)",
        "TRUNCATE tenants_apikey",
        "SET ROLE kolm_owner",
        "SELECT * FROM django_migrations",
    ],
)
def test_the_role_of_production_cannot_move_the_wall(sql):
    with pytest.raises((ProgrammingError, InternalError)), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT '\\x00'::bytea $$",
        "CREATE TEMP TABLE kolm_tenant_key (ipad bytea, opad bytea)",
    ],
)
def test_nothing_temporary_stands_in_for_what_is_there(two, sql):
    """A temporary object takes the place of its namesake for as long as a pooled session lives."""
    with pytest.raises(ProgrammingError, match="temporary"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)


def test_row_security_off_raises_rather_than_shows(two):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL row_security = off")
        with pytest.raises(ProgrammingError), transaction.atomic():
            visible_keys()


def test_an_inner_scope_gives_the_outer_one_back(two):
    mine, other = two
    with tenant_scope(mine.id):
        with tenant_scope(other.id):
            assert visible_keys() == {other.id}
        assert visible_keys() == {mine.id}
        with pytest.raises(RuntimeError), tenant_scope(other.id):
            raise RuntimeError
        assert visible_keys() == {mine.id}
    assert read_local("app.tenant") == ""


def test_every_tenant_owned_table_is_walled():
    """A table that a migration forgot would be open: ask Postgres, not the migrations."""
    tables = {model._meta.db_table for model in apps.get_models() if issubclass(model, TenantOwned)} - SHARED
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity"
            " AND EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid)"
        )
        walled = {row[0] for row in cursor.fetchall()}
        cursor.execute(
            "SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
            " WHERE attname = 'tenant_id' AND relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
            " AND NOT relispartition"  # a part has no door of its own: the next test
        )
        with_a_tenant = {row[0] for row in cursor.fetchall()}
    assert tables - walled == set()
    # `test_architecture` lists those that are shared, one by one
    shared = {model._meta.db_table for model in apps.get_models() if not issubclass(model, TenantOwned)}
    assert with_a_tenant - walled <= shared


def test_a_part_of_a_partitioned_table_is_closed_to_everybody():
    """Row-level security that is FORCEd, no policy and no grant: its rows are reached through the whole alone."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, relrowsecurity AND relforcerowsecurity,"
            " EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid),"
            " has_table_privilege('kolm_app', oid, 'SELECT') OR has_table_privilege('kolm_app', oid, 'INSERT')"
            " FROM pg_class WHERE relispartition AND relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        parts = cursor.fetchall()
    assert len(parts) == 3 * 32
    assert [
        name for name, is_forced, has_policy, is_granted in parts if not is_forced or has_policy or is_granted
    ] == []
