"""A POST that is sent again does its work once."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey, IdempotencyKey
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

N_THREADS = 20


def create(secret: str, key: str, *, name: str = "ci") -> object:
    body = json.dumps({"name": name, "scopes": ["compiles:read"]})
    headers = bearer(secret) | {"Idempotency-Key": key}
    return Client().post("/v1/api_keys", body, content_type="application/json", headers=headers)


def n_keys(tenant) -> int:
    with tenant_scope(tenant.id):
        return ApiKey.objects.of_tenant(tenant.id).exclude(name="test").count()


def test_twenty_threads_with_one_key_make_one_row():
    tenant = make_tenant()
    secret = make_api_key(tenant)
    together = threading.Barrier(N_THREADS)

    def call(_: int) -> tuple[int, str | None, str]:
        try:
            together.wait()
            answer = create(secret, "same")
            return answer.status_code, answer.headers.get("Idempotent-Replayed"), answer.content.decode()
        finally:
            connection.close()

    with ThreadPoolExecutor(N_THREADS) as threads:
        answers = list(threads.map(call, range(N_THREADS)))
    made = {body for status, _, body in answers if status == 201}
    assert len(made) == 1
    assert [replayed for status, replayed, _ in answers if status == 201].count(None) == 1
    in_flight = [json.loads(body) for status, _, body in answers if status != 201]
    assert all(body["code"] == "idempotency_in_flight" and body["retryable"] for body in in_flight)
    assert n_keys(tenant) == 1
    assert create(secret, "same").content.decode() in made


def test_while_one_works_another_is_told_when_to_ask():
    tenant = make_tenant()
    secret = make_api_key(tenant)
    from backend.tenants.idempotency import _claim

    def elsewhere() -> Any:
        try:
            return create(secret, "busy")
        finally:
            connection.close()

    with tenant_scope(tenant.id):
        _claim(tenant.id, "busy")
        with ThreadPoolExecutor(1) as other:
            answer = other.submit(elsewhere).result()
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_flight")
    assert answer["Retry-After"] == "1"
    assert create(secret, "busy").status_code == 201


def test_another_body_under_the_same_key_is_refused():
    secret = make_api_key(tenant := make_tenant())
    assert create(secret, "k").status_code == 201
    refused = create(secret, "k", name="other")
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reuse")
    assert n_keys(tenant) == 1


def test_another_tenant_may_use_the_same_key():
    assert [create(make_api_key(make_tenant()), "k").status_code for _ in range(2)] == [201, 201]


@pytest.mark.urls("tests.backend.rest.probe_urls")
def test_what_failed_is_tried_anew():
    tenant = make_tenant("before")
    headers = bearer(make_api_key(tenant)) | {"Idempotency-Key": "k"}

    def post(**body: object) -> object:
        return Client().post("/spends", json.dumps(body), content_type="application/json", headers=headers)

    assert post(name="after", fail=True).status_code == 409
    with tenant_scope(tenant.id):
        assert not IdempotencyKey.objects.exists()
    assert post(name="after").status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\tb"])
def test_a_key_that_is_no_key_is_refused(key):
    refused = create(make_api_key(make_tenant()), key)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_idempotency_key")
