"""`POST /v1/teacher_keys/{id}/test`: whether a stored key opens, asked of its provider."""

import json
from typing import Any

import pytest
from django.test import Client

from tests.compile_factories import make_teacher_key, public_id
from tests.factories import bearer, make_api_key, make_tenant
from tests.model_list_provider import model_list_provider

pytestmark = pytest.mark.django_db

SECRET = "sk-right-0123456789"


def try_key(client: Client, row: Any, base_url: str, api_key: str, **more: Any) -> Any:
    path, body = f"/v1/teacher_keys/{public_id(row)}/test", json.dumps({"base_url": base_url, **more})
    return client.post(path, body, content_type="application/json", headers=bearer(api_key))


def test_the_provider_is_asked_and_the_secret_is_not_repeated(client, settings, caplog):
    tenant = make_tenant()
    api_key = make_api_key(tenant)
    right = make_teacher_key(tenant, name="right", secret=SECRET)
    wrong = make_teacher_key(tenant, name="wrong", secret="sk-wrong-0123456789")
    with model_list_provider(SECRET) as origin:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (origin,)
        passed, refused = (try_key(client, row, f"{origin}/v1", api_key) for row in (right, wrong))
    assert passed.json() == {
        "id": public_id(right),
        "object": "teacher_key_test",
        "passed": True,
        "detail": "The provider accepts this key and lists 2 models.",
    }
    assert (refused.status_code, refused.json()["passed"]) == (200, False)
    assert "refuses this key (401)" in refused.json()["detail"]
    for answer in (passed, refused):
        assert "0123456789" not in answer.content.decode() + caplog.text


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/v1", "http://169.254.169.254/v1", "not a url", "file:///etc/passwd"]
)
def test_no_address_within_the_house_is_asked(client, url):
    tenant = make_tenant()
    answer = try_key(client, make_teacher_key(tenant, secret=SECRET), url, make_api_key(tenant))
    assert (answer.status_code, answer.json()["passed"]) == (200, False)
    assert "not allowed" in answer.json()["detail"]


@pytest.mark.parametrize("scopes", [["teacher_keys:read", "compiles:write"], ["teacher_keys:write"]])
def test_it_needs_the_right_to_store_keys_and_the_right_to_have_them_sent(client, scopes):
    tenant = make_tenant()
    row = make_teacher_key(tenant, secret=SECRET)
    answer = try_key(client, row, "http://127.0.0.1:9/v1", make_api_key(tenant, scopes=scopes))
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")


def test_the_key_of_another_tenant_is_not_there(client):
    row = make_teacher_key(make_tenant(), secret=SECRET)
    answer = try_key(client, row, "http://127.0.0.1:9/v1", make_api_key(make_tenant()))
    assert answer.status_code == 404


@pytest.mark.parametrize(("more", "pointer"), [({"base_url": ""}, "/base_url"), ({"secret": "x"}, "/secret")])
def test_a_bad_body_is_refused_at_its_place(client, more, pointer):
    tenant = make_tenant()
    row = make_teacher_key(tenant, secret=SECRET)
    answer = try_key(client, row, **({"base_url": "http://127.0.0.1:9/v1", "api_key": make_api_key(tenant)} | more))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)
