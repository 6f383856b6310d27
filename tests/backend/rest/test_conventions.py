"""Every public address keeps the same promises: found by walking the routes, so that a new one is bound by them too."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.views import APIView

from backend.domain.ids import Prefix
from backend.rest.new_ids import new_id
from tests.factories import bearer, make_api_key, make_tenant

# Not in a transaction of the test's own: DRF marks whatever transaction is under way as broken when a view fails, and
# under a view that is not atomic that would be the test's.
pytestmark = pytest.mark.usefixtures("committed_db")

# Open to anyone: they tell nothing about a tenant.
PUBLIC = {"v1/openapi.json", "v1/specs/schema", "v1/stripe/webhook"}  # the last has a signature instead
METHODS = ("get", "post", "put", "patch", "delete")
# Plain views, which drf-spectacular cannot see.
UNDOCUMENTED = {"v1/openapi.json", "v1/compiles/{compile}/events", "v1/stripe/webhook"}
# POSTs whose repetition changes nothing, or, for a run, asks again and costs again what it says.
REPEATABLE = {
    "v1/billing/checkout",  # one more page of Stripe's; nothing is bought twice
    "v1/billing/portal",
    "v1/specs/validate",
    "v1/uploads/inspect",  # looks, and stores nothing
    "v1/compiles/estimate",
    "v1/drafts/preview",
    "v1/artifacts/{artifact}/verify",
    "v1/artifacts/{artifact}/run",
    "v1/webhook_endpoints/{endpoint}/test",
    "v1/teacher_keys/{key}/test",
    "v1/chat/completions",
    "v1/completions",
    "v1/responses",
}
# Plain views that take a POST: OpenAI's addresses.
POSTED = {"v1/chat/completions", "v1/completions", "v1/responses"}
# What a parameter in an address is the id of.
PREFIX_OF = {
    "v1/api_keys": Prefix.API_KEY,
    "v1/teacher_keys": Prefix.TEACHER_KEY,
    "v1/compiles": Prefix.COMPILE,
    "v1/artifacts": Prefix.ARTIFACT,
    "v1/deployments": Prefix.DEPLOYMENT,
    "v1/models": Prefix.DEPLOYMENT,
    "v1/registry": Prefix.EPOCH,
    "v1/uploads": Prefix.UPLOAD,
    "v1/select": Prefix.SELECTION,
    "v1/drafts": Prefix.DRAFT,
    "v1/webhook_endpoints": Prefix.WEBHOOK_ENDPOINT,
    "v1/webhook_events": Prefix.WEBHOOK_EVENT,
    "v1/webhook_deliveries": Prefix.WEBHOOK_DELIVERY,
    "v1/budgets": Prefix.BUDGET,
    "v1/invoices": Prefix.INVOICE,
    "v1/members": Prefix.MEMBER,
    "v1/invitations": Prefix.INVITATION,
}


def routes(patterns: list[URLPattern | URLResolver], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        here = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, here)
        elif here.startswith("v1/"):
            yield here, pattern.callback


ROUTES = dict(routes(get_resolver().url_patterns))
PRIVATE = sorted(set(ROUTES) - PUBLIC)


def view_class(route: str) -> type[APIView] | None:
    return getattr(ROUTES[route], "view_class", None)


def address(route: str, id: str | None = None) -> str:
    """A real address of a route: with `id`, or one that nothing has, in the place of its parameter."""
    head = "/".join(route.split("/")[:2])
    filled = [(id or new_id(PREFIX_OF[head])) if part.startswith("<") else part for part in route.split("/")]
    return "/" + "/".join(filled)


def methods_of(route: str) -> list[str]:
    cls = view_class(route)
    if route in POSTED:
        return ["post"]
    return ["get"] if cls is None else [method for method in METHODS if hasattr(cls, method)]


def call(method: str, path: str, secret: str | None) -> Any:
    headers = bearer(secret) if secret else {}
    body = b'{"inputs": ["a"]}' if path.endswith("/run") else b"{}"
    return Client().generic(method.upper(), path, body, content_type="application/json", headers=headers)


def is_problem(answer: Any, status: int) -> bool:
    return (
        answer.status_code == status
        and answer["Content-Type"] == "application/problem+json"
        and answer.json()["request_id"] == answer["X-Request-Id"]
    )


@pytest.mark.parametrize("route", PRIVATE)
def test_without_a_key_there_is_no_answer(route):
    for method in methods_of(route):
        assert is_problem(call(method, address(route), None), 401), method


@pytest.mark.parametrize("route", PRIVATE)
def test_a_key_without_the_scope_gets_no_answer(route):
    tenant = make_tenant()
    others = ["usage:read"]  # a scope that no address asks for by itself
    for method in methods_of(route):
        answer = call(method, address(route), make_api_key(tenant, scopes=others))
        assert is_problem(answer, 403), f"{method}: {answer.status_code}"
        assert answer.json()["code"] == "missing_scope"


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_a_method_that_is_not_there_is_a_problem(route):
    secret = make_api_key(make_tenant())
    for method in set(METHODS) - set(methods_of(route)):
        if ROUTES[route].__name__ != "compile_events" and view_class(route) is None:
            continue
        assert is_problem(call(method, address(route), secret), 405), method


@pytest.mark.parametrize("route", [route for route in PRIVATE if "<" in route])
def test_an_id_that_nothing_has_is_a_404(route):
    secret = make_api_key(make_tenant())
    for method in methods_of(route):
        answer = call(method, address(route), secret)
        assert is_problem(answer, 404), f"{method}: {answer.status_code} {answer.content[:300]!r}"


@pytest.mark.parametrize("route", [route for route in PRIVATE if "<" in route])
@pytest.mark.parametrize("id", ["x", "cmp_", "usr_01m7ycv54jf0sa3fej7e6jfafp", "%00", "%FF", "a" * 2000, "..", "'--"])
def test_an_id_that_cannot_be_is_a_404(route, id):
    secret = make_api_key(make_tenant())
    assert is_problem(call(methods_of(route)[0], address(route, id), secret), 404)


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_a_change_is_never_made_by_a_get(route):
    cls = view_class(route)
    assert cls is None or "GET" not in getattr(cls, "spending_methods", ())


def documented() -> dict[str, Any]:
    paths = json.loads(Client().get("/v1/openapi.json").content)["paths"]
    return {path.lstrip("/"): operations for path, operations in paths.items()}


def in_braces(route: str) -> str:
    return route.replace("<str:", "{").replace(">", "}")


def test_every_address_is_documented():
    assert {in_braces(route) for route in ROUTES} - set(documented()) <= UNDOCUMENTED


def test_what_has_an_effect_obeys_idempotency_keys():
    without = set()
    for path, operations in documented().items():
        parameters = operations.get("post", {}).get("parameters", [])
        if "post" in operations and "Idempotency-Key" not in {parameter["name"] for parameter in parameters}:
            without.add(path)
    assert without <= REPEATABLE
