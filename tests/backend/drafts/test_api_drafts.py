"""/v1/drafts: browsing, searching, one draft with what was said of it, and deleting."""

from typing import Any

import pytest
from django.test import Client

from backend.domain.ids import Prefix, encode_id
from backend.drafts import api
from backend.drafts.cache import DraftScope
from backend.drafts.models import Draft, FamilyKey
from backend.rest.new_ids import new_id
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.drafts.rows import SCOPE, admitted, make_drafts, make_verdict
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

ELSEWHERE = DraftScope(family="triage", teacher=SCOPE.teacher, embedder=SCOPE.embedder)


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def ask(tenant: Tenant, path: str = "", *, method: str = "GET", scopes: list[str] | None = None) -> Any:
    secret = make_api_key(tenant, scopes=scopes or ["drafts:write"])
    return Client().generic(method, f"/v1/drafts{path}", headers=bearer(secret))


def texts(tenant: Tenant, query: str = "") -> list[str]:
    answer = ask(tenant, query)
    assert answer.status_code == 200, answer.content
    return [row["text"] for row in answer.json()["data"]]


def public(row: Draft) -> str:
    return encode_id(Prefix.DRAFT, row.id)


def test_the_list_is_newest_first_and_walks_page_by_page(tenant):
    for n in range(5):
        make_drafts(tenant, f"text {n}", seed=n)
    assert texts(tenant) == [f"text {n}" for n in (4, 3, 2, 1, 0)]
    page = ask(tenant, "?limit=2").json()
    assert [row["text"] for row in page["data"]] == ["text 4", "text 3"]
    assert (page["has_more"], page["truncated"]) == (True, False)
    assert texts(tenant, f"?limit=2&after={page['next_cursor']}") == ["text 2", "text 1"]


def test_a_row_says_where_it_is_from_and_what_became_of_it(tenant):
    (draft,) = make_drafts(tenant, admitted("give it back", is_kept=True, score=0.5))
    (row,) = ask(tenant).json()["data"]
    assert row["id"] == public(draft)
    assert (row["family"], row["teacher"], row["embedder"]) == (SCOPE.family, SCOPE.teacher, SCOPE.embedder)
    assert (row["text"], row["state"], row["is_kept"], row["score"]) == ("give it back", "live", True, 0.5)
    assert (row["n_tokens"], row["cost_microusd"], row["root"]) == (4, 2, None)
    assert row["compile"] == encode_id(Prefix.COMPILE, draft.compile_id)
    assert row["expires_at"] > row["created_at"]


def test_the_list_is_filtered_by_family_and_state(tenant):
    bad, _ = make_drafts(tenant, "bad", "good")
    make_drafts(tenant, "elsewhere", scope=ELSEWHERE)
    with tenant_scope(tenant.id):
        Draft.objects.filter(id=bad.id).update(state="quarantined")
    assert texts(tenant, "?family=triage") == ["elsewhere"]
    assert texts(tenant, "?family=nobody") == []
    assert texts(tenant, "?state=quarantined") == ["bad"]
    assert sorted(texts(tenant, "?state=live&family=router")) == ["good"]


def test_a_search_finds_parts_of_texts_in_any_case(tenant):
    make_drafts(tenant, "Where is MY parcel?", "Straße 5", "give it back")
    assert texts(tenant, "?q=my+parcel") == ["Where is MY parcel?"]
    assert texts(tenant, "?q=STRASSE") == ["Straße 5"]
    assert texts(tenant, "?q=%25") == []
    assert texts(tenant, "?q=parcel&family=triage") == []


def test_a_search_meets_every_match_once_page_by_page_however_little_it_may_look_at(tenant, monkeypatch):
    monkeypatch.setattr(api, "MOST_SEARCHED", 4)
    for n in range(23):
        make_drafts(tenant, f"{'match' if n % 5 == 0 else 'other'} {n}", seed=n)
    found, query, n_truncated = [], "?q=match&limit=2", 0
    while True:
        page = ask(tenant, query).json()
        found += [row["text"] for row in page["data"]]
        n_truncated += page["truncated"]
        assert page["truncated"] <= page["has_more"]
        if not page["has_more"]:
            break
        query = f"?q=match&limit=2&after={page['next_cursor']}"
    assert found == [f"match {n}" for n in (20, 15, 10, 5, 0)]
    assert n_truncated >= 4
    assert page["next_cursor"] is None


def test_a_search_walks_towards_newer_rows_too(tenant, monkeypatch):
    monkeypatch.setattr(api, "MOST_SEARCHED", 3)
    rows = [make_drafts(tenant, f"{'match' if n % 2 else 'other'} {n}", seed=n)[0] for n in range(8)]
    found, cursor = [], public(rows[0])
    while True:
        page = ask(tenant, f"?q=match&limit=2&before={cursor}").json()
        found = [row["text"] for row in page["data"]] + found
        if not page["has_more"]:
            break
        cursor = page["next_cursor"]
    assert found == ["match 7", "match 5", "match 3", "match 1"]


def test_a_family_whose_key_is_gone_has_rows_and_no_texts(tenant):
    make_drafts(tenant, "secret")
    with tenant_scope(tenant.id):
        FamilyKey.objects.all().delete()
    assert texts(tenant) == [None]
    assert texts(tenant, "?q=secret") == []


def test_one_draft_has_its_slice_and_what_was_said_of_it(tenant):
    (draft,) = make_drafts(tenant, "give it back", slice_text="refunds, impatient")
    make_verdict(draft)
    row = ask(tenant, f"/{public(draft)}").json()
    assert (row["text"], row["slice_text"]) == ("give it back", "refunds, impatient")
    (verdict,) = row["verdicts"]
    assert (verdict["strategy"], verdict["certificate"], verdict["is_accepted"]) == ("judge", "judged", True)
    assert (verdict["distance_ppm"], verdict["predicted_ppm"], verdict["cost_microusd"]) == (125_000, 750_000, 3)


def test_another_tenants_draft_is_not_there(tenant):
    (theirs,) = make_drafts(make_tenant(), "theirs")
    assert texts(tenant) == []
    answer = ask(tenant, f"/{public(theirs)}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert ask(tenant, f"?after={public(theirs)}").status_code == 400


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("?state=alive", "/state"),
        ("?family=", "/family"),
        ("?q=", "/q"),
        (f"?q={'x' * 201}", "/q"),
        ("?qq=a", "/qq"),
        ("?limit=0", "/limit"),
        ("?q=a&limit=x", "/limit"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(tenant, query, pointer):
    answer = ask(tenant, query)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_reading_needs_a_scope_of_its_own(tenant):
    make_drafts(tenant, "a")
    assert ask(tenant, scopes=["drafts:read"]).status_code == 200
    assert ask(tenant, scopes=["compiles:read"]).status_code == 403
    assert ask(tenant, f"/{new_id(Prefix.DRAFT)}", scopes=["drafts:read"]).status_code == 404


def test_a_draft_is_deleted_with_those_that_began_as_it(tenant):
    first, bystander = make_drafts(tenant, "give it back", "where is it")
    make_drafts(tenant, admitted("give it back!", root_id=first.id), seed=1)
    answer = ask(tenant, f"/{public(first)}", method="DELETE")
    assert (answer.status_code, answer.json()) == (200, {"object": "draft_deletion", "n_drafts": 2})
    assert texts(tenant) == ["where is it"]
    assert ask(tenant, f"/{public(first)}", method="DELETE").status_code == 404
    assert ask(tenant, f"/{public(bystander)}").status_code == 200


def test_another_tenants_draft_is_not_deleted(tenant):
    owner = make_tenant()
    (theirs,) = make_drafts(owner, "theirs")
    assert ask(tenant, f"/{public(theirs)}", method="DELETE").status_code == 404
    assert ask(tenant, "?family=router", method="DELETE").json()["n_drafts"] == 0
    assert texts(owner) == ["theirs"]


def test_a_family_is_purged_with_its_key_and_the_others_stay(tenant):
    make_drafts(tenant, "a", "b")
    make_drafts(tenant, "c", seed=1)
    make_drafts(tenant, "elsewhere", scope=ELSEWHERE)
    found = ask(tenant, "?family=router", method="DELETE").json()
    assert (found["object"], found["family"]) == ("draft_purge", "router")
    assert (found["n_drafts"], found["n_sources"], found["n_keys"]) == (3, 2, 1)
    assert texts(tenant) == ["elsewhere"]
    with tenant_scope(tenant.id):
        assert list(FamilyKey.objects.values_list("family", flat=True)) == ["triage"]
    again = ask(tenant, "?family=router", method="DELETE")
    assert (again.status_code, again.json()["n_drafts"], again.json()["n_keys"]) == (200, 0, 0)


@pytest.mark.parametrize("query", ["", "?family=", "?name=router", "?family=router&q=a"])
def test_without_a_family_nothing_is_purged(tenant, query):
    make_drafts(tenant, "a")
    assert ask(tenant, query, method="DELETE").status_code == 400
    assert texts(tenant) == ["a"]


def test_deleting_needs_the_scope_to_write(tenant):
    (draft,) = make_drafts(tenant, "a")
    for path in (f"/{public(draft)}", "?family=router"):
        answer = ask(tenant, path, method="DELETE", scopes=["drafts:read"])
        assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
    assert texts(tenant) == ["a"]
