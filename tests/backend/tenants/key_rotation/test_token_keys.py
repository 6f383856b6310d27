"""The key of tenant tokens is changed under traffic: old and new both pass meanwhile, the old one not afterwards."""

import json
import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from backend.tenants.isolation import set_erasing, set_user, tenant_scope
from backend.tenants.key_rotation import token_keys
from backend.tenants.management.commands.rotate_tenant_token_key import GRACE
from backend.tenants.models import Member, Tenant
from deploy.embedded.stack import EmbeddedServices
from tests.factories import bearer, make_api_key, make_tenant
from tests.key_pieces import as_owner, run_as_owner

pytestmark = pytest.mark.usefixtures("committed_db")


class Process:
    """A web process with a key of its own: every request of it acts for a tenant by a token under that key."""

    def __init__(self, settings: Any, key: bytes, secret: str) -> None:
        self._settings, self._key, self._secret = settings, key, secret

    def ask(self) -> int:
        self._settings.KOLM_TENANT_TOKEN_KEY = self._key
        client = Client(raise_request_exception=False)
        read = client.get("/v1/tenant", headers=bearer(self._secret)).status_code
        key = {"name": secrets.token_hex(4), "scopes": ["compiles:read"]}
        written = client.post("/v1/api_keys", key, content_type="application/json", headers=bearer(self._secret))
        return max(read, written.status_code)


@pytest.fixture
def old(settings: Any, embedded_services: EmbeddedServices) -> Iterator[bytes]:
    key: bytes = settings.KOLM_TENANT_TOKEN_KEY
    settings.KOLM_SECRETS_FILE = None
    yield key
    settings.KOLM_TENANT_TOKEN_KEY = key
    run_as_owner(embedded_services, "install_tenant_key", "--only")


@pytest.fixture
def new(old: bytes) -> bytes:
    return secrets.token_bytes(32)


def the_key_was_installed_long_ago() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kolm_tenant_key SET installed_at = %s", [timezone.now() - GRACE - timedelta(seconds=1)])


def test_old_and_new_processes_both_work_until_it_is_finished(old, new, settings, embedded_services):
    secret = make_api_key(make_tenant())
    before, after = Process(settings, old, secret), Process(settings, new, secret)
    assert (before.ask(), after.ask()) == (201, 500)
    settings.KOLM_TENANT_TOKEN_KEY = new
    assert "accepted beside 1" in run_as_owner(embedded_services, "rotate_tenant_token_key")
    assert (before.ask(), after.ask(), before.ask()) == (201, 201, 201)
    settings.KOLM_TENANT_TOKEN_KEY = new
    with as_owner(embedded_services):
        the_key_was_installed_long_ago()
        call_command("rotate_tenant_token_key", "--finish")
    assert (after.ask(), before.ask()) == (201, 500)


def test_people_and_erasures_have_tokens_of_the_same_key(old, new, settings, embedded_services):
    """`kolm_user()` and `kolm_erasing()` look where `kolm_tenant()` looks."""
    tenant: Tenant = make_tenant()

    def passes(key: bytes) -> bool:
        settings.KOLM_TENANT_TOKEN_KEY = key
        try:
            with tenant_scope(tenant.id), connection.cursor() as cursor:
                set_erasing(tenant.id)
                cursor.execute("SELECT kolm_erasing()")
                (erases,) = cursor.fetchone()
            with transaction.atomic():
                set_user(1)
                list(Member.objects.all())
        except DatabaseError:
            return False
        return erases == tenant.id

    assert (passes(old), passes(new)) == (True, False)
    settings.KOLM_TENANT_TOKEN_KEY = new
    run_as_owner(embedded_services, "rotate_tenant_token_key")
    assert (passes(old), passes(new)) == (True, True)
    settings.KOLM_TENANT_TOKEN_KEY = new
    run_as_owner(embedded_services, "rotate_tenant_token_key", "--finish", "--now")
    assert (passes(old), passes(new)) == (False, True)


def test_a_release_in_the_middle_of_a_change_ends_nothing(old, new, settings, embedded_services):
    """`install_tenant_key` runs after every migrate, with the new environment, while old processes still answer."""
    secret = make_api_key(make_tenant())
    settings.KOLM_TENANT_TOKEN_KEY = new
    assert "1 earlier keys" in run_as_owner(embedded_services, "install_tenant_key")
    run_as_owner(embedded_services, "install_tenant_key")
    assert [Process(settings, key, secret).ask() for key in (old, new)] == [201, 201]


def test_a_change_is_finished_only_when_old_transactions_can_have_ended(old, new, settings, embedded_services):
    settings.KOLM_TENANT_TOKEN_KEY = new
    with pytest.raises(CommandError, match="never installed"):
        run_as_owner(embedded_services, "rotate_tenant_token_key", "--finish")
    run_as_owner(embedded_services, "rotate_tenant_token_key")
    with pytest.raises(CommandError, match="or --now"):
        run_as_owner(embedded_services, "rotate_tenant_token_key", "--finish")


def test_a_change_is_undone_by_finishing_it_with_the_key_of_before(old, new, settings, embedded_services):
    secret = make_api_key(make_tenant())
    settings.KOLM_TENANT_TOKEN_KEY = new
    run_as_owner(embedded_services, "rotate_tenant_token_key")
    settings.KOLM_TENANT_TOKEN_KEY = old
    run_as_owner(embedded_services, "rotate_tenant_token_key", "--finish", "--now")
    assert [Process(settings, key, secret).ask() for key in (old, new)] == [201, 500]


def test_without_a_new_key_nothing_begins_and_the_owner_alone_may(old, embedded_services):
    with pytest.raises(CommandError, match="key of before"):
        run_as_owner(embedded_services, "rotate_tenant_token_key")
    for arguments in ([], ["--finish"]):
        with pytest.raises(CommandError, match="KOLM_DB_ROLE=owner"):
            call_command("rotate_tenant_token_key", *arguments)


def test_the_embedded_stack_has_the_new_key_accepted_before_anybody_can_read_it(
    old, settings, embedded_services, tmp_path: Path
):
    file = settings.KOLM_SECRETS_FILE = tmp_path / "secrets.json"
    file.write_text(json.dumps({"tenant_token_key": old.hex(), "runner_token": "kept"}))
    said = run_as_owner(embedded_services, "rotate_tenant_token_key")
    kept = json.loads(file.read_text())
    assert kept["runner_token"] == "kept"
    assert kept["tenant_token_key"] not in {old.hex(), said}
    secret = make_api_key(make_tenant())
    keys = (old, bytes.fromhex(kept["tenant_token_key"]))
    assert [Process(settings, key, secret).ask() for key in keys] == [201, 201]
    with as_owner(embedded_services):
        assert token_keys.accepted_keys(old).n_others == 1
