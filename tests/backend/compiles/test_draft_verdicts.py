"""GET /v1/compiles/{id}/drafts and the pages: the drafts that the teacher kept beside those that it refused."""

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from backend.compiles.draft_verdicts import asked_drafts
from backend.compiles.models import Compile, Slice
from backend.domain.drafts.vocabulary import Strategy, VerdictKind
from backend.domain.roles import Role
from backend.drafts.models import Draft, FamilyKey
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.compiles.draft_world import draft_world, planned_slice
from tests.backend.console.pages import get, logged_in, plain
from tests.backend.drafts.rows import SCOPE, make_drafts, make_offer, make_verdict
from tests.compile_factories import make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db
HOSTILE = '<img src="x">\u202e'


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def ask(tenant: Tenant, row: Compile, query: str = "", *, scopes: tuple[str, ...] = ("drafts:read",)) -> Any:
    headers = bearer(make_api_key(tenant, scopes=scopes))
    return Client().get(f"/v1/compiles/{public_id(row)}/drafts{query}", headers=headers)


def listed(tenant: Tenant, row: Compile, query: str = "") -> list[dict[str, Any]]:
    answer = ask(tenant, row, query)
    assert answer.status_code == 200, answer.content
    return answer.json()["data"]


def verdicts(part: dict[str, Any]) -> set[tuple[str, str | None]]:
    return {(one["verdict"], one["text"]) for one in part["drafts"]}


def judged(tenant: Tenant, *texts: str, n_refused: int = 0, name: str = "refund") -> Compile:
    """A compile whose only slice asked about these, the last `n_refused` in vain."""
    row = make_compile(tenant)
    drafts = make_drafts(tenant, *texts)
    _, plan = planned_slice(row, name, 0, drafts[0])
    make_offer(tenant, compile_id=row.id, id=plan.offer_id, scope_id=drafts[0].scope_id, verification_microusd=5)
    for n, draft in enumerate(drafts):
        kept = n < len(drafts) - n_refused
        make_verdict(draft, compile_id=row.id, offer_id=plan.offer_id, is_accepted=kept)
    return row


def test_each_slice_has_what_was_kept_refused_and_void_and_no_repeats(tenant: Tenant) -> None:
    (part,) = listed(tenant, draft_world(tenant))
    assert (part["slice"], part["net_microusd"]) == ("refund", 490)
    assert (part["n_accepted"], part["n_refused"], part["n_void"]) == (2, 1, 1)
    assert [one["verdict"] for one in part["drafts"]] == ["accepted", "accepted", "refused", "void"]
    assert verdicts(part) == {
        ("accepted", "money back please"),
        ("accepted", "I want a refund"),
        ("refused", "where is my parcel"),
        ("void", "a void one"),
    }
    first = part["drafts"][0]
    assert (first["predicted_ppm"], first["distance_ppm"], first["kinship"]) == (750_000, 125_000, "other")
    assert (first["strategy"], first["certificate"], part["drafts"][2]["certificate"]) == ("judge", "judged", None)


def test_a_draft_that_was_deleted_since_has_no_text(tenant: Tenant) -> None:
    row = judged(tenant, "stays", "goes")
    with tenant_scope(tenant.id):
        Draft.objects.of_tenant(tenant.id).filter(text_mac__in=[d.text_mac for d in Draft.objects.all()][1:]).delete()
    (part,) = listed(tenant, row)
    assert sorted(str(one["text"]) for one in part["drafts"]) in (["None", "stays"], ["None", "goes"])
    with tenant_scope(tenant.id):
        FamilyKey.objects.of_tenant(tenant.id).delete()
    assert [one["text"] for one in listed(tenant, row)[0]["drafts"]] == [None, None]


def test_a_verdict_that_followed_a_void_one_counts(tenant: Tenant) -> None:
    row = judged(tenant, "asked twice")
    with tenant_scope(tenant.id):
        (draft,) = Draft.objects.of_tenant(tenant.id)
        (pool,) = Slice.objects.filter(compile=row)
        plan = pool.offer_plan
    assert plan is not None
    make_verdict(draft, compile_id=row.id, offer_id=plan.offer_id, kind=VerdictKind.VOID, is_accepted=False)
    (part,) = listed(tenant, row)
    assert (part["n_accepted"], part["n_void"]) == (1, 0)


def test_a_slice_that_is_not_written_yet_has_verdicts_and_no_saving(tenant: Tenant) -> None:
    row = make_compile(tenant)
    (draft,) = make_drafts(tenant, "early")
    _, plan = planned_slice(row, "refund", 0, draft)
    make_verdict(draft, compile_id=row.id, offer_id=plan.offer_id)
    (part,) = listed(tenant, row)
    assert (part["n_accepted"], part["net_microusd"]) == (1, None)
    assert "1 kept, 0 refused<" in get(logged_in(tenant), f"/app/compiles/{public_id(row)}?tab=all")


def test_one_slice_and_fewer_texts_can_be_asked_for(tenant: Tenant) -> None:
    row = judged(tenant, *(f"text {n}" for n in range(7)), n_refused=3)
    (part,) = listed(tenant, row, "?slice=refund&limit=2")
    assert (part["n_accepted"], part["n_refused"], len(part["drafts"])) == (4, 3, 4)
    assert listed(tenant, row, "?slice=other") == []
    for query in ("?limit=0", "?limit=101", "?limit=x", "?slize=a", "?slice=%00"):
        assert ask(tenant, row, query).status_code in (400, 422), query


def test_another_tenants_compile_is_not_there(tenant: Tenant) -> None:
    other = make_tenant("Other")
    row = draft_world(other)
    assert ask(tenant, row).status_code == 404
    mine = judged(tenant, "mine")
    (draft,) = make_drafts(other, "theirs", seed=3)
    with tenant_scope(tenant.id):
        (pool,) = Slice.objects.filter(compile=mine)
        plan = pool.offer_plan
    assert plan is not None
    # a verdict of theirs on this compile's offer, as only a fault of ours could write it
    make_verdict(draft, compile_id=mine.id, offer_id=plan.offer_id, scope_id=plan.scope_id)
    assert verdicts(listed(tenant, mine)[0]) == {("accepted", "mine")}
    with tenant_scope(tenant.id):
        assert asked_drafts(row, []).positions == []


def test_reading_them_needs_the_scope_of_drafts(tenant: Tenant) -> None:
    answer = ask(tenant, draft_world(tenant), scopes=("compiles:write",))
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")


def test_a_compile_without_verdicts_has_none(tenant: Tenant) -> None:
    assert listed(tenant, make_compile(tenant)) == []


# --- pages ------------------------------------------------------------------------------------------------------------


def test_the_compiles_page_has_kept_and_refused_texts_side_by_side(tenant: Tenant) -> None:
    row = judged(tenant, "kept text", HOSTILE, "a long one " * 60, n_refused=1)
    text = get(logged_in(tenant, Role.VIEWER), f"/app/compiles/{public_id(row)}?tab=all")
    kept, _, refused = text.partition("<b>Refused</b>")
    assert "kept text" in kept.partition("<b>Kept</b>")[2]
    assert "a long one a long one" in refused
    assert "…" in refused
    assert HOSTILE not in text
    assert "refund: 2 kept, 1 refused, net saving −$0.000005" in plain(text)
    assert f"/v1/compiles/{public_id(row)}/drafts" in text


def test_many_slices_are_folded_and_cut_at_what_a_page_takes(tenant: Tenant) -> None:
    row = make_compile(tenant)
    drafts = make_drafts(tenant, *(f"text {n} " + "long " * 200 for n in range(12)))
    for position in range(13):
        _, plan = planned_slice(row, f"slice {position}", position, drafts[0])
        for n, draft in enumerate(drafts):
            made = {"compile_id": row.id, "offer_id": plan.offer_id, "is_accepted": n % 2 == 0}
            make_verdict(draft, **made)
    text = get(logged_in(tenant), f"/app/compiles/{public_id(row)}?tab=all")
    assert "12 of 13 slices are shown" in text
    assert "The newest 5 of 6." in text
    assert " open><summary>slice 0" not in text


def test_the_cache_page_shows_the_newest_compile_that_asked(tenant: Tenant) -> None:
    draft_world(tenant)
    row = judged(tenant, "newest kept", "newest refused", n_refused=1)
    text = get(logged_in(tenant), "/app/drafts")
    assert public_id(row) in text
    assert "newest kept" in text.partition("Kept and refused")[2].partition("<b>Refused</b>")[0]
    assert "newest refused" in text
    assert "where is my parcel" not in text


def test_the_best_case_is_named_where_the_teacher_is_the_built_in_one_alone(tenant: Tenant) -> None:
    judged(tenant, "a")
    assert "best case" in get(logged_in(tenant), "/app/drafts")
    other = make_tenant("Other")
    (draft,) = make_drafts(other, "b", scope=replace(SCOPE, teacher="openai_compatible/m@r1"))
    make_offer(other, scope_id=draft.scope_id)
    make_verdict(draft)
    assert "best case" not in get(logged_in(other), "/app/drafts")


def test_drafts_of_the_same_prompt_are_no_examples(tenant: Tenant) -> None:
    (draft,) = make_drafts(tenant, "repeated")
    make_verdict(draft, strategy=Strategy.REPEAT, compile_id=new_uuid7())
    assert "Kept and refused" not in get(logged_in(tenant), "/app/drafts")
