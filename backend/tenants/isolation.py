"""The wall between tenants: which tenant a transaction acts for, and the policies that hold every row to it.

A transaction carries a signed token in the setting `app.tenant`; the SQL function `kolm_tenant()` checks signature
and expiry and gives the tenant, and every tenant-owned table lets only that tenant's rows be read or written
(row-level security, FORCEd). A bare setting would not do: SQL that is injected anywhere could switch it. Without a
token, with a forged or an expired one, a query raises.

Queries still filter by tenant themselves; this is the second wall.
"""

import hmac
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TypeVar
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection, models, transaction

from backend.rest.new_ids import new_uuid7

# Outlives any transaction (statement limit 30 s), so that a token seen in a log or a core dump is soon worth nothing.
TOKEN_TTL_S = 300

_M = TypeVar("_M", bound=models.Model)


class TenantRows(models.QuerySet[_M]):
    def of_tenant(self, tenant_id: UUID) -> "TenantRows[_M]":
        """The rows of one tenant: how every query on a tenant-owned table begins."""
        return self.filter(tenant_id=tenant_id)


class TenantOwned(models.Model):
    """A row of one tenant. Its table gets `rls_policy_sql` in the migration that makes it; a test counts the
    policies."""

    tenant_id = models.UUIDField(editable=False)
    id = models.UUIDField(primary_key=True, default=new_uuid7, editable=False)

    objects = TenantRows.as_manager()

    class Meta:
        abstract = True


@contextmanager
def tenant_scope(tenant_id: UUID) -> Iterator[None]:
    """One transaction that acts for one tenant. Inside another transaction it is a savepoint, and the tenant from
    before is put back at its end."""
    is_nested = connection.in_atomic_block
    with transaction.atomic():
        before = read_local("app.tenant") if is_nested else ""
        set_tenant(tenant_id)
        yield
        if is_nested:  # after an exception the savepoint's rollback has put it back already
            set_local("app.tenant", before)


def set_tenant(tenant_id: UUID) -> None:
    """Bind the transaction under way to a tenant until its end."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("A tenant is set for a transaction; there is none under way.")
    set_local("app.tenant", tenant_token(tenant_id))


def set_local(name: str, value: str) -> None:
    """Set a setting until the transaction ends (or its savepoint is rolled back). The value travels as a parameter of
    the wire: Django writes parameters into the text, and pg_stat_activity shows a statement's text to every session of
    the role, so that a token in it could be taken by another tenant's."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        psycopg.Cursor(connection.connection).execute("SELECT set_config(%s, %s, true)", [name, value])


def read_local(name: str) -> str:
    """A setting of the session, "" where it was never set."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(current_setting(%s, true), '')", [name])
        return str(cursor.fetchone()[0])


def tenant_token(tenant_id: UUID, *, expires_at: int | None = None) -> str:
    """`<uuid>.<unix seconds>.<hex HMAC-SHA256 of the two>`; what `kolm_tenant()` accepts."""
    expiry = int(time.time()) + TOKEN_TTL_S if expires_at is None else expires_at
    return _sign(f"{tenant_id}.{expiry}")


def set_user(user_id: int) -> None:
    """Bind the transaction under way to a logged-in person, who sees his own memberships before a tenant is chosen."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("A user is set for a transaction; there is none under way.")
    set_local("app.user", user_token(user_id))


def user_token(user_id: int, *, expires_at: int | None = None) -> str:
    """`user-<id>.<unix seconds>.<hex HMAC-SHA256 of the two>`; what `kolm_user()` accepts."""
    expiry = int(time.time()) + TOKEN_TTL_S if expires_at is None else expires_at
    return _sign(f"user-{user_id}.{expiry}")


def set_erasing(tenant_id: UUID) -> None:
    """Let the transaction under way delete this tenant's rows from append-only tables: the deletion of a tenant."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("There is no transaction under way to erase in.")
    set_local("app.erase", _sign(f"erase-{tenant_id}.{int(time.time()) + TOKEN_TTL_S}"))


def _sign(claim: str) -> str:
    return f"{claim}.{hmac.new(settings.KOLM_TENANT_TOKEN_KEY, claim.encode(), sha256).hexdigest()}"


# --- for migrations -----------------------------------------------------------------------------------------


def rls_policy_sql(table: str, *, column: str = "tenant_id") -> tuple[str, str]:
    """(forward, reverse) SQL that gives a table's rows to their tenants:
    `migrations.RunSQL(*rls_policy_sql("compiles_compile"))`.

    FORCE binds the owner of the table too: run this in a migration of its own, after the tables are made (a foreign
    key that is added reads the table). The sub-select makes one call of `kolm_tenant()` per query, not one per
    row."""
    mine = f"{column} = (SELECT kolm_tenant())"
    return (
        f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY tenant ON {table} USING ({mine}) WITH CHECK ({mine});
        GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO kolm_app;
        """,
        f"""
        REVOKE ALL ON {table} FROM kolm_app;
        DROP POLICY tenant ON {table};
        ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;
        ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
        """,
    )


def shared_table_sql(table: str) -> tuple[str, str]:
    """(forward, reverse) SQL for a table that holds no tenant's content and is read by processes that serve all
    tenants."""
    return (
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO kolm_app;",
        f"REVOKE ALL ON {table} FROM kolm_app;",
    )


def append_only_sql(table: str) -> tuple[str, str]:
    """(forward, reverse) SQL that makes a table refuse UPDATE, DELETE and TRUNCATE, from its owner too."""
    return (
        f"""
        CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}
            FOR EACH ROW EXECUTE FUNCTION kolm_append_only();
        CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION kolm_append_only();
        """,
        f"""
        DROP TRIGGER append_only ON {table};
        DROP TRIGGER append_only_truncate ON {table};
        """,
    )
