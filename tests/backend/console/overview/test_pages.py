"""The overview and what is around every page: navigation, search, error pages."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backend.compiles.models import Compile
from backend.console.shell import shell
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.usage.models import Account
from backend.webhooks.models import WebhookEndpoint
from tests.backend.console.pages import get, logged_in, plain
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


def make_compile(tenant, **fields) -> Compile:
    row = {"name": "refund-router", "family": "refunds", "spec": {}, "spec_sha256": "0" * 64, "estimate": {}}
    with tenant_scope(tenant.id):
        return Compile.objects.create(tenant_id=tenant.id, **(row | {"budget_microusd": 5_000_000} | fields))


def test_an_empty_team_is_told_how_to_begin(settings):
    text = get(logged_in(make_tenant("Newcomers")), "/app/")
    assert "Get started" in text
    for way in ("/app/start", "/app/gallery", "/app/settings", "/app/team", "/app/api_keys"):
        assert f'href="{way}"' in text.partition("Get started")[2]
    assert "curl" not in text.partition("<details><summary>By API")[0]
    assert f"curl -s {settings.KOLM_PUBLIC_URL}/v1/compiles" in text
    assert 'href="/docs/first-compile"' in text
    assert "No compile is running." in text
    assert "No compile has ended yet." in text


@pytest.mark.parametrize("is_local", [False, True])
def test_only_the_stack_on_this_machine_shows_the_line_that_needs_the_clone(monkeypatch, is_local):
    monkeypatch.setattr("backend.console.overview.pages.IS_LOCAL", is_local)
    text = get(logged_in(make_tenant()), "/app/")
    assert (".venv/bin/kolm check examples/refund-router.yaml" in text) is is_local


def test_a_team_that_has_compiled_is_not():
    tenant = make_tenant()
    gate = {"passed": True, "first_failed": None, "next_step": ""}
    make_compile(tenant, status="succeeded", k_score_ppm=912_345, gate=gate, ended_at=timezone.now())
    text = get(logged_in(tenant), "/app/")
    assert "Get started" not in text
    assert "0.912" in text
    assert '<span class="tag good">passed</span>' in text


def test_names_and_advice_are_text():
    tenant = make_tenant(HOSTILE)
    gate = {"passed": False, "first_failed": "k_min", "next_step": HOSTILE}
    make_compile(tenant, name=HOSTILE, status="gate_failed", gate=gate, ended_at=timezone.now())
    make_compile(tenant, name=HOSTILE, status="running")
    assert HOSTILE not in get(logged_in(tenant), "/app/")


def test_what_runs_is_fetched_again_and_what_does_not_is_not():
    tenant = make_tenant()
    client = logged_in(tenant)
    assert "hx-get" not in get(client, "/app/running")
    row = make_compile(tenant, status="running")
    text = get(client, "/app/running")
    assert 'hx-get="/app/running"' in text
    assert encode_id(Prefix.COMPILE, row.id) in text


@pytest.mark.parametrize(("spent", "tone"), [(1_000_000, ""), (8_000_000, "warn"), (10_000_000, "bad")])
def test_spend_is_shown_against_the_cap(spent, tone):
    tenant = make_tenant()
    with tenant_scope(tenant.id):
        Account.objects.filter(tenant_id=tenant.id).update(cap_microusd=10_000_000, spent_microusd=spent)
    text = get(logged_in(tenant), "/app/")
    assert f'<progress class="{tone}" value="{spent // 100_000}"' in text
    assert f"${spent / 1e6:.2f} of $10.00" in plain(text)


def test_whoever_may_not_read_bills_sees_no_money():
    tenant = make_tenant()
    assert "Spent this month" not in get(logged_in(tenant, Role.VIEWER), "/app/")
    assert "Spent this month" in get(logged_in(tenant, Role.BILLING), "/app/")


def test_a_failing_webhook_is_told_of():
    tenant = make_tenant()
    hook = {"url": "https://hooks.example/x", "events": ["*"], "secret": b"x"}
    with tenant_scope(tenant.id):
        WebhookEndpoint.objects.create(tenant_id=tenant.id, failing_since=timezone.now() - timedelta(days=2), **hook)
        WebhookEndpoint.objects.create(tenant_id=tenant.id, **(hook | {"url": "https://fine.example/"}))
    text = get(logged_in(tenant), "/app/")
    assert "https://hooks.example/x" in text
    assert "has been failing" in text
    assert "https://fine.example/" not in text


# --- navigation and search ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "labels"),
    [
        (Role.VIEWER, ["Overview", "Compiles", "Data", "Artifacts", "Draft cache", "Recipe registry", "Deployments"]),
        (
            Role.BILLING,
            [
                *("Overview", "Compiles", "Data", "Artifacts", "Draft cache", "Recipe registry", "Deployments"),
                "Usage & bills",
            ],
        ),
    ],
)
def test_the_navigation_has_what_a_role_may_open(role, labels):
    answer = logged_in(make_tenant(), role).get("/app/")
    assert [line["label"] for group in answer.context["nav"] for line in group] == labels
    assert [line["label"] for group in answer.context["nav"] for line in group if line["is_here"]] == ["Overview"]


def test_the_context_around_a_page_costs_no_query():
    request = RequestFactory().get("/v1/compiles")
    request.user = AnonymousUser()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert shell(request)["nav"] == ()
    assert len(queries) == 0


def test_search_leads_from_an_id_to_its_page_and_never_to_another_tenants():
    tenant, other = make_tenant(), make_tenant("Other")
    mine, theirs = make_compile(tenant), make_compile(other)
    client = logged_in(tenant)
    mine_id, their_id = encode_id(Prefix.COMPILE, mine.id), encode_id(Prefix.COMPILE, theirs.id)
    assert client.get("/app/search", {"q": f" {mine_id} "})["Location"] == f"/app/compiles/{mine_id}"
    assert client.get("/app/search", {"q": their_id}).status_code == 404
    assert client.get("/app/search", {"q": "refund & co"})["Location"] == "/app/compiles?q=refund+%26+co"
    assert client.get("/app/search")["Location"] == "/app/compiles"
    hook = encode_id(Prefix.WEBHOOK_ENDPOINT, new_uuid7())
    assert client.get("/app/search", {"q": hook})["Location"] == f"/app/webhooks/{hook}"


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_an_address_of_the_console_that_is_not_there_is_a_page_and_one_of_the_api_a_problem():
    page = Client().get("/app/<b>nothing</b>")
    assert page.status_code == 404
    assert page["Content-Type"].startswith("text/html")
    assert "&lt;b&gt;nothing" in page.content.decode()
    problem = Client().get("/v1/nothing")
    assert problem.status_code == 404
    assert problem["Content-Type"] == "application/problem+json"


def test_a_refusal_is_a_page_or_for_htmx_a_fragment():
    client = logged_in(make_tenant("Acme"), Role.VIEWER)
    text = get(client, "/app/team", status=403)
    assert "Your role in Acme is viewer" in text
    assert "missing_role" in text
    fragment = client.get("/app/team", headers={"HX-Request": "true"})
    assert fragment.status_code == 403
    assert fragment.content.decode().startswith('<div class="callout bad" data-problem="missing_role">')


def test_what_breaks_is_a_page_without_its_cause(monkeypatch, caplog):
    from backend.console.overview import pages

    def broken(team_session):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(pages, "running_part", broken)
    client = logged_in(make_tenant())
    client.raise_request_exception = False
    answer = client.get("/app/")
    assert answer.status_code == 500
    text = answer.content.decode()
    assert "Something broke on our side" in text
    assert "secret detail" not in text
    assert "req_" in text


def test_a_form_from_elsewhere_is_refused_with_a_page():
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/accounts/login/", {"login": "a@b.example", "password": "x"})
    assert answer.status_code == 403
    assert "This form has expired" in answer.content.decode()


def test_pages_are_sent_compressed_and_with_the_policy():
    client = logged_in(make_tenant())
    answer = client.get("/app/", headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    policy = answer["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
