"""One Idempotency-Key, one compile: the costliest POST there is."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from backend.compiles.models import Compile, CompileLease
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

N_THREADS = 20


def create(secret: str, key: str, spec: dict[str, Any]) -> Any:
    headers = bearer(secret) | {"Idempotency-Key": key}
    return Client().post("/v1/compiles", json.dumps(spec), content_type="application/json", headers=headers)


def n_compiles(tenant: Any) -> int:
    with tenant_scope(tenant.id):
        return Compile.objects.count()


def test_the_same_key_and_body_is_the_same_compile_and_another_body_is_refused():
    secret = make_api_key(tenant := make_tenant())
    first, again = (create(secret, "k", small_spec()) for _ in range(2))
    assert (first.status_code, first.content) == (202, again.content)
    assert again["Idempotent-Replayed"] == "true"
    assert again["Location"] == first["Location"]
    other = create(secret, "k", small_spec(name="other"))
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reuse")
    assert n_compiles(tenant) == 1


def test_a_refused_spec_does_not_use_its_key_up():
    secret = make_api_key(tenant := make_tenant())
    assert create(secret, "k", small_spec(task="")).status_code == 422
    assert create(secret, "k", small_spec()).status_code == 202
    assert n_compiles(tenant) == 1


def test_twenty_threads_with_one_key_start_one_compile():
    secret = make_api_key(tenant := make_tenant())
    together = threading.Barrier(N_THREADS)

    def call(_: int) -> tuple[int, dict[str, Any]]:
        try:
            together.wait()
            answer = create(secret, "same", small_spec())
            return answer.status_code, answer.json()
        finally:
            connection.close()

    with ThreadPoolExecutor(N_THREADS) as threads:
        answers = list(threads.map(call, range(N_THREADS)))
    assert len({body["id"] for status, body in answers if status == 202}) == 1
    assert {body["code"] for status, body in answers if status != 202} <= {"idempotency_in_flight"}
    assert n_compiles(tenant) == 1
    assert CompileLease.objects.filter(tenant_id=tenant.id).count() == 1
