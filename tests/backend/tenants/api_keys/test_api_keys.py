"""The life of an API key."""

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from backend.tenants.api_keys.key_format import ALPHABET, hash_of, is_well_formed, new_key
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey, IdempotencyKey
from backend.tenants.permissions import ALL_SCOPES
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db


def create(client: Client, secret: str, *, key: str | None = None, **body: object) -> object:
    headers = bearer(secret) | ({"Idempotency-Key": key} if key else {})
    shape = {"name": "ci", "scopes": ["compiles:read"]} | body
    return client.post("/v1/api_keys", json.dumps(shape), content_type="application/json", headers=headers)


def test_a_key_opens_its_tenant(client):
    tenant = make_tenant("Acme")
    answer = client.get("/v1/tenant", headers=bearer(make_api_key(tenant)))
    assert answer.status_code == 200
    assert answer.json()["name"] == "Acme"


@given(st.integers(0, 43), st.sampled_from(ALPHABET))
def test_a_key_with_one_character_changed_is_no_key(place, character):
    key = new_key(is_live=True)
    changed = key[:place] + character + key[place + 1 :]
    assert is_well_formed(key)
    assert is_well_formed(changed) == (changed == key)


def test_keys_say_what_they_are():
    assert new_key(is_live=True).startswith("sk_live_")
    assert new_key(is_live=False).startswith("sk_test_")
    assert len(new_key(is_live=True)) == 44


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("Bearer nonsense", "invalid_api_key"),
        ("Bearer ", "invalid_api_key"),
        ("Bearer sk_live_" + "é" * 36, "invalid_api_key"),
        ("Basic abc", "invalid_api_key"),
        pytest.param(f"Bearer {new_key(is_live=True)}", "invalid_api_key", id="well made and nobody's"),
    ],
)
def test_what_is_no_key_opens_nothing(client, header, code):
    answer = client.get("/v1/tenant", headers={"Authorization": header})
    assert (answer.status_code, answer.json()["code"]) == (401, code)


def test_a_key_is_shown_once_and_stored_as_a_hash(client):
    tenant = make_tenant()
    made = create(client, make_api_key(tenant))
    assert made.status_code == 201
    body = made.json()
    secret = body.pop("secret")
    assert made["Location"] == f"/v1/api_keys/{body['id']}"
    shown = client.get(made["Location"], headers=bearer(make_api_key(tenant)))
    assert shown.json() == body
    assert body["prefix"] == secret[:12]
    assert body["last4"] == secret[-4:]
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        cursor.execute("SELECT tenants_apikey::text FROM tenants_apikey")
        rows = str(cursor.fetchall())
    assert hash_of(secret) in rows
    assert secret[12:-4] not in rows


def test_a_revoked_key_opens_nothing(client):
    tenant = make_tenant()
    owner = make_api_key(tenant)
    made = create(client, owner).json()
    url = f"/v1/api_keys/{made['id']}/revoke"
    first = client.post(url, headers=bearer(owner))
    again = client.post(url, headers=bearer(owner))
    assert first.status_code == again.status_code == 200
    assert first.json()["revoked_at"] == again.json()["revoked_at"] is not None
    refused = client.get("/v1/compiles", headers=bearer(made["secret"]))
    assert (refused.status_code, refused.json()["code"]) == (401, "api_key_revoked")


def test_an_expired_key_opens_nothing(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    with tenant_scope(tenant.id):
        ApiKey.objects.filter(key_hash=hash_of(secret)).update(expires_at=timezone.now() - timedelta(seconds=1))
    refused = client.get("/v1/tenant", headers=bearer(secret))
    assert (refused.status_code, refused.json()["code"]) == (401, "api_key_expired")


def test_a_key_without_the_scope_is_refused(client):
    secret = make_api_key(make_tenant(), scopes=["compiles:read"])
    refused = client.get("/v1/tenant", headers=bearer(secret))
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    assert "tenant:read" in refused.json()["detail"]


def test_who_may_write_may_read(client):
    secret = make_api_key(make_tenant(), scopes=["api_keys:write"])
    assert client.get("/v1/api_keys", headers=bearer(secret)).status_code == 200
    secret = make_api_key(make_tenant(), scopes=["api_keys:read"])
    assert create(client, secret).status_code == 403


def test_a_key_gives_no_scope_that_it_has_not(client):
    secret = make_api_key(make_tenant(), scopes=["api_keys:write"])
    assert create(client, secret, scopes=["compiles:write"]).json()["code"] == "missing_scope"
    assert create(client, secret, scopes=["api_keys:write"]).status_code == 201


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": "x" * 101}, "/name"),
        ({"scopes": []}, "/scopes"),
        ({"scopes": ["compiles:raed"]}, "/scopes/0"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
        ({"expires_at": "2090-01-01T00:00:00Z"}, "/expires_at"),
        ({"expires_at": "soon"}, "/expires_at"),
        ({"expire_at": None}, "/expire_at"),
    ],
)
def test_a_bad_request_for_a_key_names_the_place(client, body, pointer):
    answer = create(client, make_api_key(make_tenant()), **body)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_another_tenants_key_is_not_there(client):
    stranger = make_api_key(make_tenant())
    theirs = create(client, make_api_key(make_tenant())).json()["id"]
    for call in (
        client.get(f"/v1/api_keys/{theirs}", headers=bearer(stranger)),
        client.post(f"/v1/api_keys/{theirs}/revoke", headers=bearer(stranger)),
    ):
        assert (call.status_code, call.json()["code"]) == (404, "not_found")
    assert theirs not in client.get("/v1/api_keys", headers=bearer(stranger)).content.decode()


@pytest.mark.parametrize(
    "id", ["key_", "cmp_01m7ycv54jf0sa3fej7e6jfafp", "key_01m7ycv54jf0sa3fej7e6jfafp", "1", "%00", "key_" + "z" * 26]
)
def test_an_id_that_cannot_be_is_not_there(client, id):
    answer = client.get(f"/v1/api_keys/{id}", headers=bearer(make_api_key(make_tenant())))
    assert answer.status_code == 404


def test_the_last_use_is_noted_to_the_minute(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)

    def last_used() -> object:
        with tenant_scope(tenant.id):
            return ApiKey.objects.get(key_hash=hash_of(secret)).last_used_at

    assert last_used() is None
    client.get("/v1/nothing-needs-a-key", headers=bearer(secret))
    assert last_used() is None
    client.get("/v1/api_keys/key_x", headers=bearer(secret))  # also a call that fails is a use
    first = last_used()
    assert first is not None
    client.get("/v1/tenant", headers=bearer(secret))
    assert last_used() == first


def test_a_replayed_creation_shows_the_same_secret_and_keeps_it_sealed(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    first = create(client, secret, key="once")
    again = create(client, secret, key="once")
    assert again.json() == first.json()
    assert again["Idempotent-Replayed"] == "true"
    assert again["Location"] == first["Location"]
    assert "Idempotent-Replayed" not in first
    with tenant_scope(tenant.id):
        kept = bytes(IdempotencyKey.objects.get().body)
    assert first.json()["secret"].encode() not in kept


def test_the_list_of_keys_never_has_secrets(client):
    secret = make_api_key(make_tenant(), scopes=ALL_SCOPES)
    page = client.get("/v1/api_keys", headers=bearer(secret)).json()
    assert page["object"] == "list"
    assert "secret" not in page["data"][0]
    assert secret not in json.dumps(page)
