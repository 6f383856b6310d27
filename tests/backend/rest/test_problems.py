"""Every error, whoever raises it, is one shape."""

import json

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from tests.factories import bearer, make_api_key, make_tenant

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.backend.rest.probe_urls")]

MEMBERS = {
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "errors",
    "request_id",
    "retryable",
    "doc_url",
}

KINDS = [
    ("invalid_spec", 422, "invalid_spec", False),
    ("invalid_input", 400, "invalid_input", False),
    ("not_found", 404, "not_found", False),
    ("conflict", 409, "conflict", False),
    ("payment_required", 402, "payment_required", False),
    ("forbidden", 403, "forbidden", False),
    ("rate_limited", 429, "rate_limited", True),
    ("customer", 400, "odd", False),
    ("unavailable", 503, "unavailable", True),
    ("teacher_failed", 502, "teacher_failed", True),
    ("ours", 500, "internal_error", True),
    ("bug", 500, "internal_error", True),
    ("data", 500, "internal_error", False),
    ("database", 503, "unavailable", True),
    ("http404", 404, "not_found", False),
    ("denied", 403, "forbidden", False),
    ("suspicious", 400, "bad_request", False),
]


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


def problem(response, status: int, code: str) -> dict:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body = response.json()
    assert set(body) == MEMBERS
    assert (body["status"], body["code"]) == (status, code), body
    assert body["request_id"] == response["X-Request-Id"]
    assert body["request_id"].startswith("req_")
    assert response["Kolm-Version"] == "2026-11-20"
    assert body["type"] == f"urn:kolm:error:{code}"
    assert body["doc_url"] == f"{settings.KOLM_PUBLIC_URL}/docs/errors#{code}"
    assert "secret detail" not in response.content.decode()
    return body


@pytest.mark.parametrize("where", ["raises", "plain", "caught"])
@pytest.mark.parametrize(("what", "status", "code", "is_retryable"), KINDS)
def test_each_kind_of_error_has_its_status_and_code(client, where, what, status, code, is_retryable):
    body = problem(client.get(f"/{where}/{what}"), status, code)
    assert body["retryable"] is is_retryable
    assert body["instance"] == f"/{where}/{what}"


def test_a_spec_error_names_its_places(client):
    body = client.get("/raises/invalid_spec").json()
    assert body["errors"] == [{"pointer": "/task", "code": "empty", "detail": "is empty"}]


def test_what_may_succeed_later_says_when(client):
    assert client.get("/raises/rate_limited")["Retry-After"] == "2"
    assert client.get("/raises/unavailable")["Retry-After"] == "5"


def test_an_error_of_ours_is_logged_with_its_place(client, caplog):
    client.get("/raises/bug")
    assert "ZeroDivisionError" in caplog.text
    assert "probe_urls.py" in caplog.text


def test_an_unknown_address(client):
    problem(client.get("/v1/nothing"), 404, "not_found")


def test_an_address_is_not_joined_with_a_slash(client):
    problem(client.get("/v1/tenant/"), 404, "not_found")


def test_a_method_that_an_address_does_not_have(client):
    response = client.delete("/v1/tenant", headers=bearer(make_api_key(make_tenant())))
    problem(response, 405, "method_not_allowed")
    assert response["Allow"] == "GET, HEAD, OPTIONS"


def test_no_key(client):
    response = client.get("/v1/tenant")
    problem(response, 401, "missing_api_key")
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "malformed_json"),
        (b'{"name": NaN}', "malformed_json"),
        (b'{"name": Infinity}', "malformed_json"),
        (b'{"name": "a", "name": "b"}', "malformed_json"),
        (b'{"name": "\xff"}', "invalid_utf8"),
        (b'{"name": "\\u0000"}', "malformed_json"),
        (b'{"name": "\\ud800"}', "malformed_json"),
        (b"[" * 100_000, "malformed_json"),
        (b"[" * 66 + b"]" * 66, "malformed_json"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "malformed_json"),
        (b'{"name": ' + b"9" * 5000 + b"}", "malformed_json"),
        (b"\xef\xbb\xbf{}", "malformed_json"),
    ],
)
def test_a_body_that_is_not_clean_json(client, body, code):
    problem(client.post("/echo", body, content_type="application/json"), 400, code)


def test_a_body_of_another_type(client):
    problem(client.post("/echo", b"name=a", content_type="text/plain"), 415, "unsupported_media_type")


def test_a_body_that_is_not_an_object(client):
    body = problem(client.post("/echo", b"[1]", content_type="application/json"), 400, "invalid_request")
    assert body["errors"][0]["pointer"] == ""


def test_every_fault_of_a_body_is_named_at_once(client):
    sent = {
        "name": "much too long",
        "diversity_lamda": 1,
        "inner": {"size": 0, "x/y~z": 1},
        "many": [{"size": 1}, {"size": "a"}],
    }
    body = problem(client.post("/echo", json.dumps(sent), content_type="application/json"), 400, "unknown_parameter")
    found = {(e["pointer"], e["code"]) for e in body["errors"]}
    assert found == {
        ("/diversity_lamda", "unknown_parameter"),
        ("/name", "max_length"),
        ("/inner/x~1y~0z", "unknown_parameter"),
        ("/inner/size", "min_value"),
        ("/many/1/size", "invalid"),
    }
    typo = next(e for e in body["errors"] if e["pointer"] == "/diversity_lamda")
    assert "did you mean 'diversity_lambda'" in typo["detail"]


def test_a_version_that_there_is_not(client):
    response = client.get("/v1/tenant", headers={"Kolm-Version": "2031-01-01"})
    problem(response, 400, "unknown_version")
    assert client.get("/healthz", headers={"Kolm-Version": "2026-11-20"}).status_code == 200


def test_an_inbound_request_id_is_not_ours(client):
    assert client.get("/healthz", headers={"X-Request-Id": "req_mine"})["X-Request-Id"] != "req_mine"


def test_an_error_takes_the_effect_back():
    """DRF answers errors instead of letting them pass, so the transaction must be told."""
    secret = make_api_key(tenant := make_tenant("before"))
    client = Client(raise_request_exception=False)
    body = json.dumps({"name": "after", "fail": True})
    response = client.post("/spends", body, content_type="application/json", headers=bearer(secret))
    problem(response, 409, "conflict")
    assert not connection.needs_rollback
    assert client.get("/v1/tenant", headers=bearer(secret)).json()["name"] == tenant.name
