"""The audit log: in order, without gaps, unchanged."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client

from backend.compiles.models import TeacherKey
from backend.domain.canonical import sha256_of
from backend.domain.ids import Prefix, encode_id
from backend.tenants import audit
from backend.tenants.actors import SYSTEM, Actor
from backend.tenants.isolation import set_erasing, set_local, tenant_scope
from backend.tenants.models import AuditEntry, AuditHead, Tenant
from deploy.embedded.stack import EmbeddedServices
from tests.factories import bearer, make_api_key, make_tenant

ANNA = Actor(kind="user", id="usr_7", label="anna@example.com")


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    return make_tenant()


def noted(tenant: Tenant, n: int = 3) -> None:
    for i in range(n):
        with tenant_scope(tenant.id):
            audit.note(tenant.id, actor=ANNA, action="thing.changed", target=f"t_{i}", data={"i": i, "name": "é"})


def lines(tenant: Tenant) -> list[dict[str, Any]]:
    with tenant_scope(tenant.id):
        return list(audit.export_lines(tenant.id))


def problems(tenant: Tenant) -> list[str]:
    with tenant_scope(tenant.id):
        return audit.verify_chain(tenant.id)


def test_each_line_follows_the_digest_of_the_one_before(tenant):
    noted(tenant)
    found = lines(tenant)
    assert [line["seq"] for line in found] == [1, 2, 3]
    before = audit.GENESIS
    for line in found:  # as an outsider computes it
        digest = line.pop("sha256")
        assert line["prev_sha256"] == before
        assert sha256_of(line) == digest
        before = digest
    assert problems(tenant) == []


def test_an_empty_log_is_whole(tenant):
    assert problems(tenant) == []


def test_what_is_rolled_back_leaves_no_gap(tenant):
    def fails() -> None:
        with tenant_scope(tenant.id):
            audit.note(tenant.id, actor=ANNA, action="thing.changed")
            raise ZeroDivisionError

    noted(tenant, 1)
    with pytest.raises(ZeroDivisionError):
        fails()
    noted(tenant, 1)
    assert [line["seq"] for line in lines(tenant)] == [1, 2]
    assert problems(tenant) == []


def test_many_at_once_stand_in_one_order(tenant):
    def write() -> None:
        noted(tenant, 5)
        connection.close()

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line["seq"] for line in lines(tenant)] == list(range(1, 41))
    assert problems(tenant) == []


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE tenants_auditentry SET action = 'nothing.happened'",
        "DELETE FROM tenants_auditentry",
    ],
)
def test_the_database_refuses_to_change_the_log(tenant, sql):
    noted(tenant)
    with pytest.raises(DatabaseError, match="append-only"), tenant_scope(tenant.id), connection.cursor() as cursor:
        cursor.execute(sql)


def test_a_forged_permission_to_erase_opens_nothing(tenant):
    noted(tenant)
    other = make_tenant()

    def run(allow: Callable[[], None], sql: str) -> None:
        with tenant_scope(tenant.id), connection.cursor() as cursor:
            allow()
            cursor.execute(sql)

    forged = f"erase-{tenant.id}.9999999999.{'0' * 64}"
    delete, update = "DELETE FROM tenants_auditentry", "UPDATE tenants_auditentry SET action = 'x'"
    for allow, sql in (
        (lambda: set_local("app.erase", forged), delete),
        (lambda: set_erasing(other.id), delete),
        (lambda: set_erasing(tenant.id), update),
    ):
        with pytest.raises(DatabaseError, match="append-only"):
            run(allow, sql)


class AsOwner:
    """The owner of the tables with the trigger taken off: somebody who got around the database."""

    def __init__(self, tenant: Tenant, services: EmbeddedServices) -> None:
        self.tenant, self.services = tenant, services

    def run(self, sql: str) -> None:
        import psycopg
        from psycopg.conninfo import make_conninfo

        from backend.tenants.isolation import tenant_token

        address = make_conninfo(self.services.env["DATABASE_OWNER_URL"], dbname=connection.settings_dict["NAME"])
        with psycopg.connect(address) as db:
            db.execute("ALTER TABLE tenants_auditentry DISABLE TRIGGER append_only")
            db.execute("SELECT set_config('app.tenant', %s, true)", [tenant_token(self.tenant.id)])
            db.execute(sql)
            db.execute("ALTER TABLE tenants_auditentry ENABLE TRIGGER append_only")


@pytest.fixture
def owner(tenant: Tenant, embedded_services: EmbeddedServices) -> AsOwner:
    noted(tenant, 5)
    return AsOwner(tenant, embedded_services)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE tenants_auditentry SET data = '{\"i\": 9}' WHERE seq = 3", "Line 3 was changed"),
        ("UPDATE tenants_auditentry SET actor_label = 'somebody else' WHERE seq = 1", "Line 1 was changed"),
        ("UPDATE tenants_auditentry SET created_at = created_at - interval '1 s' WHERE seq = 5", "Line 5 was changed"),
        ("DELETE FROM tenants_auditentry WHERE seq = 2", "Between line 1 and line 3"),
        ("DELETE FROM tenants_auditentry WHERE seq > 3", "lines are missing at the end"),
        ("UPDATE tenants_auditentry SET seq = 9 - seq WHERE seq IN (4, 5)", "does not follow"),
    ],
)
def test_what_was_done_behind_the_databases_back_is_found(owner, sql, said):
    if "9 - seq" in sql:
        owner.run("ALTER TABLE tenants_auditentry DROP CONSTRAINT audit_seq_once")
    owner.run(sql)
    found = problems(owner.tenant)
    assert any(said in problem for problem in found), found
    with pytest.raises(CommandError, match=said):
        call_command("audit_verify", "--tenant", encode_id(Prefix.TENANT, owner.tenant.id))
    if "9 - seq" in sql:
        owner.run("UPDATE tenants_auditentry SET seq = 9 - seq WHERE seq IN (4, 5)")
        owner.run("ALTER TABLE tenants_auditentry ADD CONSTRAINT audit_seq_once UNIQUE (tenant_id, seq)")


def test_the_command_says_how_long_the_log_is(tenant, capsys):
    noted(tenant, 2)
    call_command("audit_verify", "--tenant", encode_id(Prefix.TENANT, tenant.id))
    assert "n_lines: 2" in capsys.readouterr().out


def test_keys_and_teacher_keys_leave_lines_with_the_key_that_asked(tenant):
    secret = make_api_key(tenant)
    ask = {"content_type": "application/json", "headers": bearer(secret)}
    made = Client().post("/v1/api_keys", {"name": "ci", "scopes": ["usage:read"]}, **ask).json()
    Client().post(f"/v1/api_keys/{made['id']}/revoke", **ask)
    Client().post(f"/v1/api_keys/{made['id']}/revoke", **ask)
    kept = Client().post("/v1/teacher_keys", {"name": "mine", "secret": "sk-very-secret-1234"}, **ask).json()
    Client().delete(f"/v1/teacher_keys/{kept['id']}", headers=bearer(secret))
    found = lines(tenant)
    assert [(line["action"], line["target"]) for line in found[1:]] == [
        ("api_key.created", made["id"]),
        ("api_key.revoked", made["id"]),
        ("teacher_key.stored", kept["id"]),
        ("teacher_key.deleted", kept["id"]),
    ]
    assert found[0]["actor"]["kind"] == SYSTEM.kind
    assert {line["actor"]["kind"] for line in found[1:]} == {"api_key"}
    assert encode_id(Prefix.API_KEY, make_first_key_id(tenant)) == found[1]["actor"]["id"]
    assert "very-secret" not in str(found)
    assert secret not in str(found)
    with tenant_scope(tenant.id):
        assert not TeacherKey.objects.exists()


def make_first_key_id(tenant: Tenant) -> Any:
    from backend.tenants.models import ApiKey

    with tenant_scope(tenant.id):
        return ApiKey.objects.order_by("created_at").values_list("id", flat=True)[0]


def test_another_tenants_log_is_not_there(tenant):
    noted(tenant)
    other = make_tenant()
    with tenant_scope(other.id):
        assert list(AuditEntry.objects.all()) == []
        assert list(AuditHead.objects.all()) == []
    with pytest.raises(DatabaseError), transaction.atomic():
        list(AuditEntry.objects.all())
