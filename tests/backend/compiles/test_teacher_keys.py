"""Teacher keys: sealed when they come in, opened by the worker alone, shown never."""

import json
import logging
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from backend.compiles.models import TEACHER_KEY, TeacherKey
from backend.domain.errors import OurError
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import IdempotencyKey
from backend.tenants.sealing import unseal
from tests.compile_factories import make_teacher_key
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

SECRET = "sk-canary-4f9c1d2e8b7a6053"


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def secret(tenant):
    return make_api_key(tenant)


def store(client: Client, secret: str, body: Any = None, **headers: str) -> Any:
    return client.post(
        "/v1/teacher_keys",
        json.dumps({"name": "vendor", "secret": SECRET} if body is None else body),
        content_type="application/json",
        headers=bearer(secret) | headers,
    )


def test_a_stored_key_opens_for_its_tenant_and_lies_sealed(client, tenant, secret):
    answer = store(client, secret)
    assert answer.status_code == 201
    assert answer.json()["last4"] == SECRET[-4:]
    with tenant_scope(tenant.id):
        row = TeacherKey.objects.get()
        with connection.cursor() as cursor:
            cursor.execute("SELECT compiles_teacherkey::text FROM compiles_teacherkey")
            raw = str(cursor.fetchall())
    assert SECRET not in raw
    assert SECRET.encode().hex() not in raw
    assert unseal(tenant.id, bytes(row.sealed), purpose=TEACHER_KEY).decode() == SECRET


def test_a_sealed_key_copied_to_another_tenant_does_not_open(tenant):
    other, row = make_tenant(), make_teacher_key(tenant)
    with pytest.raises(OurError):
        unseal(other.id, bytes(row.sealed), purpose=TEACHER_KEY)
    with pytest.raises(OurError):
        unseal(tenant.id, bytes(row.sealed), purpose=b"another purpose")


def test_no_answer_no_log_line_and_no_kept_answer_holds_the_secret(client, tenant, secret, caplog):
    caplog.set_level(logging.DEBUG)
    made = store(client, secret, **{"Idempotency-Key": "once"})
    again = store(client, secret, **{"Idempotency-Key": "once"})
    address = made["Location"]
    answers = [
        made,
        again,
        client.get(address, headers=bearer(secret)),
        client.get("/v1/teacher_keys", headers=bearer(secret)),
        store(client, secret, {"name": "", "secret": SECRET}),
        store(client, secret, {"name": "x", "secret": SECRET, "oops": SECRET}),
        store(client, secret, {"name": "x", "secret": [SECRET]}),
    ]
    assert [a.status_code for a in answers] == [201, 201, 200, 200, 400, 400, 400]
    assert all("secret" not in row for row in answers[3].json()["data"])
    for answer in answers[:5] + answers[6:]:
        assert SECRET not in answer.content.decode()
    assert SECRET not in caplog.text
    with tenant_scope(tenant.id):
        assert SECRET.encode() not in bytes(IdempotencyKey.objects.get().body)


def test_the_end_of_a_short_secret_is_not_shown(client, secret):
    assert store(client, secret, {"name": "x", "secret": "short"}).json()["last4"] == ""


@pytest.mark.parametrize(
    "pasted", [f'"{SECRET}"', f"Bearer {SECRET}", f"VENDOR_API_KEY={SECRET}", SECRET.replace("-", "\n")]
)
def test_what_can_be_no_key_is_refused_when_it_is_stored_and_not_repeated(client, tenant, secret, pasted, caplog):
    answer = store(client, secret, {"name": "vendor", "secret": pasted})
    (problem,) = answer.json()["errors"]
    assert (answer.status_code, problem["code"], problem["pointer"]) == (400, "bad_key", "/secret")
    assert SECRET[-8:] not in answer.content.decode() + caplog.text
    with tenant_scope(tenant.id):
        assert not TeacherKey.objects.exists()


def test_a_forgotten_key_is_gone(client, tenant, secret):
    address = store(client, secret)["Location"]
    assert client.delete(address, headers=bearer(secret)).status_code == 204
    assert client.delete(address, headers=bearer(secret)).status_code == 404
    assert client.get(address, headers=bearer(secret)).status_code == 404
    with tenant_scope(tenant.id):
        assert not TeacherKey.objects.exists()


def test_reading_keys_does_not_store_or_forget_them(client, tenant, secret):
    reader = make_api_key(tenant, scopes=["teacher_keys:read"])
    address = store(client, secret)["Location"]
    assert client.get(address, headers=bearer(reader)).status_code == 200
    assert store(client, reader).status_code == 403
    assert client.delete(address, headers=bearer(reader)).status_code == 403


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "x"}, "/secret"),
        ({"secret": "x"}, "/name"),
        ({"name": "x" * 101, "secret": "x"}, "/name"),
        ({"name": "x", "secret": ""}, "/secret"),
        ({"name": "x", "secret": "x" * 501}, "/secret"),
        ({"name": "x", "secret": "x", "sekret": 1}, "/sekret"),
    ],
)
def test_a_bad_key_is_refused_at_its_place(client, secret, body, pointer):
    answer = store(client, secret, body)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == pointer
