"""POST, GET and lists of compiles."""

import json
from typing import Any

import pytest
from django.test import Client

from backend.compiles.events import append_event, touch
from backend.compiles.models import Compile, CompileEvent, CompileLease, Outbox, StepRun
from backend.domain.lifecycle import STEPS, CompileStatus
from backend.domain.spec.parsing import parse_spec
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import (
    change,
    make_candidate,
    make_compile,
    make_receipts,
    make_slice,
    public_id,
    small_spec,
)
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def secret(tenant):
    return make_api_key(tenant)


def post(client: Client, secret: str, path: str, body: Any) -> Any:
    return client.post(path, json.dumps(body), content_type="application/json", headers=bearer(secret))


def get(client: Client, secret: str, path: str, **headers: str) -> Any:
    return client.get(path, headers=bearer(secret) | headers)


def test_a_compile_is_accepted_with_its_steps_its_lease_its_hint_and_its_first_event(client, tenant, secret):
    answer = post(client, secret, "/v1/compiles", small_spec())
    assert answer.status_code == 202
    body = answer.json()
    assert answer["Location"] == f"/v1/compiles/{body['id']}"
    assert (body["object"], body["status"], body["sequence"]) == ("compile", "queued", 1)
    assert (body["budget_microusd"], body["spent_microusd"], body["reserved_microusd"]) == (1_000_000, 0, 0)
    with tenant_scope(tenant.id):
        row = Compile.objects.get()
        assert list(StepRun.objects.order_by("position").values_list("name", flat=True)) == list(STEPS)
        assert [e.type for e in CompileEvent.objects.all()] == ["compile.status"]
    assert CompileLease.objects.get(compile_id=row.id).due_at is not None
    assert Outbox.objects.filter(ids__compile_id=str(row.id), sent_at=None).count() == 1


def test_the_spec_is_shown_with_every_default_and_reads_as_the_same_spec_again(client, secret):
    given = small_spec()
    shown = get(client, secret, post(client, secret, "/v1/compiles", given)["Location"]).json()["spec"]
    assert (shown["sampling"]["min_agreement"], shown["sampling"]["label_samples"]) == (0.6, None)
    assert shown["plan"] == {"kind": "fixed", "point_usd": None, "stop": "worth", "more_candidates": False}
    assert parse_spec(shown) == parse_spec(given)


def test_the_estimate_of_a_compile_is_the_one_that_was_asked_for_before(client, secret):
    asked = post(client, secret, "/v1/compiles/estimate", small_spec()).json()
    made = post(client, secret, "/v1/compiles", small_spec()).json()["estimate"]
    assert made == {name: asked[name] for name in made}
    assert asked["within_budget"]
    total = asked["total"]
    assert 0 < total["low_microusd"] <= total["expected_microusd"] <= total["high_microusd"]
    assert sum(step["expected_microusd"] for step in asked["steps"]) == total["expected_microusd"]


def test_an_estimate_says_when_the_budget_is_too_small_and_starts_nothing(client, tenant, secret):
    answer = post(client, secret, "/v1/compiles/estimate", small_spec(budget={"usd": 0.000001}))
    assert (answer.status_code, answer.json()["within_budget"]) == (200, False)
    with tenant_scope(tenant.id):
        assert not Compile.objects.exists()


def test_validating_fills_in_the_defaults_and_starts_nothing(client, tenant, secret):
    answer = post(client, secret, "/v1/specs/validate", small_spec())
    assert answer.status_code == 200
    assert answer.json()["valid"]
    assert answer.json()["spec"]["gate"]["k_min"] is None
    with tenant_scope(tenant.id):
        assert not Compile.objects.exists()


def test_the_schema_of_a_spec_is_for_everybody(client):
    schema = client.get("/v1/specs/schema").json()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {"name", "task", "output", "examples", "teacher"} <= set(schema["required"])


def test_compiles_are_listed_newest_first_by_cursor_and_without_their_specs(client, tenant, secret):
    ids = [public_id(make_compile(tenant, name=f"task-{i}")) for i in range(5)]
    seen, cursor = [], ""
    while True:
        page = get(client, secret, f"/v1/compiles?limit=2{cursor}").json()
        seen += [row["id"] for row in page["data"]]
        assert all("spec" not in row for row in page["data"])
        if not page["has_more"]:
            break
        cursor = f"&after={page['next_cursor']}"
    assert seen == ids[::-1]
    before = get(client, secret, f"/v1/compiles?limit=1&before={ids[1]}").json()
    assert [row["id"] for row in before["data"]] == [ids[2]]


def test_compiles_are_filtered_by_status_and_name(client, tenant, secret):
    queued, done = make_compile(tenant, name="one"), make_compile(tenant, name="two")
    change(done, status=CompileStatus.SUCCEEDED)

    def listed(query: str) -> list[str]:
        return [row["id"] for row in get(client, secret, f"/v1/compiles?{query}").json()["data"]]

    assert listed("status=queued") == [public_id(queued)]
    assert listed("status=succeeded") == [public_id(done)]
    assert listed("name=two&status=queued") == []
    refused = get(client, secret, "/v1/compiles?staus=queued")
    assert (refused.status_code, refused.json()["code"]) == (400, "unknown_parameter")
    assert "'status'" in refused.json()["detail"]


@pytest.mark.parametrize("query", ["name=a%00b", "status=%00", "after=%00", "limit=0", "limit=101", "limit=two"])
def test_a_query_that_makes_no_sense_is_a_400(client, secret, query):
    assert get(client, secret, f"/v1/compiles?{query}").status_code == 400


def test_a_list_costs_the_same_queries_however_long_it_is(client, tenant, secret, django_assert_max_num_queries):
    get(client, secret, "/v1/compiles")  # notes the key's first use
    for i in range(8):
        make_compile(tenant, name=f"task-{i}")
    with django_assert_max_num_queries(8):
        assert len(get(client, secret, "/v1/compiles").json()["data"]) == 8


def test_the_etag_changes_with_whatever_the_body_shows(client, tenant, secret):
    row = make_compile(tenant)
    path = f"/v1/compiles/{public_id(row)}"
    first = get(client, secret, path)
    same = get(client, secret, path, **{"If-None-Match": first["ETag"]})
    assert (same.status_code, same.content) == (304, b"")
    with tenant_scope(tenant.id):
        append_event(tenant.id, row.id, "step.progress", {"done": 1})
    moved = get(client, secret, path, **{"If-None-Match": first["ETag"]})
    assert (moved.status_code, moved.json()["sequence"]) == (200, 2)
    with tenant_scope(tenant.id):
        touch(row, spent_microusd=7)
    spent = get(client, secret, path, **{"If-None-Match": moved["ETag"]})
    assert (spent.status_code, spent.json()["spent_microusd"]) == (200, 7)


def test_steps_are_in_walking_order_with_their_estimates(client, tenant, secret):
    row = make_compile(tenant)
    steps = get(client, secret, f"/v1/compiles/{public_id(row)}/steps").json()["data"]
    assert [(step["name"], step["position"]) for step in steps] == [(name.value, i) for i, name in enumerate(STEPS)]
    assert {step["status"] for step in steps} == {"pending"}
    assert steps[1]["estimate"]["expected_microusd"] > 0


def test_slices_show_what_was_asked_and_what_was_kept_without_the_long_part(client, tenant, secret):
    row = make_compile(tenant)
    make_slice(row, k_actual=3, selection={"k_actual": 3, "cluster_of": [0] * 12})
    (shown,) = get(client, secret, f"/v1/compiles/{public_id(row)}/slices").json()["data"]
    assert (shown["k_requested"], shown["k_actual"], shown["selection"]) == (4, 3, {"k_actual": 3})


def test_candidates_are_listed_and_filtered(client, tenant, secret):
    row = make_compile(tenant)
    pool, other = make_slice(row), make_slice(row, name="edge", position=1)
    for i in range(3):
        make_candidate(pool, text=f"text {i}", state="picked" if i == 0 else "dropped")
    make_candidate(other, text="another", state="picked")

    def texts(query: str) -> set[str]:
        page = get(client, secret, f"/v1/compiles/{public_id(row)}/candidates?{query}").json()
        return {candidate["text"] for candidate in page["data"]}

    assert texts("") == {"text 0", "text 1", "text 2", "another"}
    assert texts("state=picked") == {"text 0", "another"}
    assert texts("slice=edge") == {"another"}
    assert texts("slice=edge&state=dropped") == set()


def test_receipts_are_a_chain(client, tenant, secret):
    row = make_compile(tenant)
    make_receipts(row, n=3)
    shown = get(client, secret, f"/v1/compiles/{public_id(row)}/receipts").json()["data"]
    assert [receipt["seq"] for receipt in shown] == [0, 1, 2]
    assert [receipt["step"] for receipt in shown] == [name.value for name in STEPS[:3]]


def test_a_key_that_may_only_read_starts_nothing(client, tenant):
    reader = make_api_key(tenant, scopes=["compiles:read"])
    refused = post(client, reader, "/v1/compiles", small_spec())
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    assert post(client, reader, "/v1/compiles/estimate", small_spec()).status_code == 200
    assert post(client, reader, "/v1/specs/validate", small_spec()).status_code == 200
