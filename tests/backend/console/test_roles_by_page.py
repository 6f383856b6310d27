"""Every address of the console, every role: found by walking the routes, so that a new page is bound too.

What a role may is `domain.roles.ALLOWED`; what a page asks for stands on its view. Nothing else is in this file.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver

from backend.console import urls
from backend.domain.roles import ALLOWED, Permission, Role
from backend.rest.new_ids import new_uuid7
from tests.factories import make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

# Not `@page`s, each with its reason.
WITHOUT_A_ROLE = {
    "": "leads to the overview",
    "app": "leads to the overview",
    "pricing": "for anybody",
    "app/welcome": "for people without a team",
    "app/invitations/<str:token>": "for people who are invited",
    "app/switch": "to another team of one's own",
    "app/security": "one's own account security",
    "app/team/<str:tenant>/leave": "a team of one's own",
    "app/deletions/<str:erasure>": "for who asked for it",
}
FOR_ANYBODY = {"", "app/invitations/<str:token>", "pricing"}


def routes(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        here = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, here)
        elif isinstance(pattern, URLPattern):
            yield here, pattern.callback


ROUTES = dict(routes(urls.urlpatterns))
PAGES = {route: view for route, view in ROUTES.items() if hasattr(view, "permission")}
STREAM_ROUTES = sorted(route for route in PAGES if route.endswith("/events"))  # read by a script, never by a person


def address(route: str) -> str:
    """A real address of the route, of things that are not there: the door is before the room."""
    parts = []
    for part in route.split("/"):
        kind, _, name = part.strip("<>").partition(":")
        parts.append(
            part if not part.startswith("<") else {"int": "1", "uuid": str(new_uuid7())}.get(kind, f"no-{name}")
        )
    return "/" + "/".join(parts)


@pytest.fixture(scope="module")
def clients(django_db_setup: None, django_db_blocker: Any) -> dict[Role, Client]:
    with django_db_blocker.unblock():
        tenant = make_tenant("Five roles")
        found = {}
        for role in Role:
            found[role] = Client(raise_request_exception=True)
            found[role].force_login(make_member(tenant, role))
    return found


def test_every_address_of_the_console_asks_for_a_permission_or_has_a_reason():
    assert set(ROUTES) - set(PAGES) == set(WITHOUT_A_ROLE)
    assert len(PAGES) >= 30


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("route", sorted(set(PAGES) - set(STREAM_ROUTES)))
def test_a_page_opens_for_the_roles_that_may_and_for_no_other(route, role, clients):
    permission: Permission = PAGES[route].permission
    for method in ("get", "post"):
        answer = getattr(clients[role], method)(address(route))
        if answer.streaming and not answer.is_async:
            b"".join(answer.streaming_content)  # whoever reads a file to its end closes it
        is_refused = answer.status_code == 403
        may = permission in ALLOWED[role]
        if answer.status_code == 405:
            continue  # the page has no such method
        assert is_refused == (not may), (method, answer.status_code)
        if may:
            assert answer.status_code in (200, 302, 303, 400, 402, 404, 409, 422)
        else:
            assert b"missing_role" in answer.content or b"your role" in answer.content.lower()


@pytest.mark.parametrize("route", sorted(set(ROUTES) - FOR_ANYBODY - set(STREAM_ROUTES)))
def test_without_a_log_in_every_address_leads_to_the_log_in_page(route):
    for method in ("get", "post"):
        answer = getattr(Client(), method)(address(route))
        if answer.status_code == 405:
            continue
        assert answer.status_code in (301, 302), answer.status_code
        assert answer["Location"].startswith("/accounts/login/") or answer["Location"] == "/app/"


@pytest.mark.parametrize("route", STREAM_ROUTES)
def test_a_stream_answers_its_script_with_a_status_instead_of_a_page(route, clients):
    assert Client().get(address(route)).status_code == 401
    assert clients[Role.VIEWER].get(address(route)).status_code == 404


@pytest.mark.parametrize("route", sorted(set(PAGES) - set(STREAM_ROUTES)))
def test_somebody_without_a_team_is_asked_to_name_one(route):
    tenant = make_tenant()
    client = Client()
    user = make_member(tenant)
    client.force_login(user)
    from backend.tenants.isolation import tenant_scope
    from backend.tenants.models import Member

    with tenant_scope(tenant.id):
        Member.objects.all().delete()
    answer = client.get(address(route))
    if answer.status_code == 405:
        answer = client.post(address(route))
    assert answer.status_code == 302
    assert answer["Location"].partition("?")[0] == "/app/welcome"


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_a_form_that_does_not_come_from_our_page_is_refused(route):
    """CSRF: every POST of the console, by a logged-in owner whose browser was sent here by another site."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_member(make_tenant()))
    answer = client.post(address(route), {"name": "x"}, headers={"origin": "https://evil.example"})
    assert answer.status_code in (403, 405)
