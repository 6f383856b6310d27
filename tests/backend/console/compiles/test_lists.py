"""The list of compiles, its search, the comparison of several, and the data page's filters and download."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backend.compiles.models import Candidate
from backend.console.compiles.comparison import shared_differences, spec_differences
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from tests.backend.console.compiles.test_pages import judged
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import (
    change,
    make_artifact,
    make_candidate,
    make_compile,
    make_receipts,
    make_slice,
    make_upload,
    public_id,
)
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

LIST = "/app/compiles"


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def client(tenant):
    return logged_in(tenant, Role.VIEWER)


def test_without_compiles_the_page_says_how_one_is_started(client):
    text = get(client, LIST)
    assert "No compiles yet" in text
    assert "/v1/compiles" in text


def test_only_who_may_compile_is_offered_a_new_one(client, tenant):
    assert "New compile" not in get(client, LIST)
    assert "New compile" in get(logged_in(tenant, Role.DEVELOPER), LIST)


def test_lines_are_filtered_by_status_name_family_and_day(client, tenant):
    one = make_compile(tenant, name="refunds", family="support")
    two = make_compile(tenant, name="spam", family="mail")
    change(two, status="failed", failed_step="labeling", created_at=timezone.now() - timedelta(days=9))
    cases = {"": 2, "?status=failed": 1, "?q=fund": 1, "?family=mail": 1, "?q=%25": 0, "?from=2999-01-01": 0}
    today = (timezone.now() - timedelta(days=2)).date().isoformat()
    cases |= {f"?from={today}": 1, f"?to={today}": 1, "?from=nonsense": 2, "?status=nonsense": 2}
    for query, n in cases.items():
        assert get(client, LIST + query).count("<tr data-row") == n, query
    text = get(client, f"{LIST}?status=failed")
    assert public_id(two) in text
    assert public_id(one) not in text
    assert "at labeling" in text


def test_lines_are_walked_by_cursor_to_and_fro(client, tenant, monkeypatch):
    monkeypatch.setattr("backend.console.compiles.lists.PAGE_SIZE", 2)
    rows = [make_compile(tenant, name=f"c{i}") for i in range(5)]
    ids = [public_id(row) for row in reversed(rows)]

    def shown(text: str) -> list[str]:
        return [one for one in ids if f'value="{one}"' in text]

    first = get(client, LIST)
    second = get(client, f"{LIST}?cursor={ids[1]}")
    third = get(client, f"{LIST}?cursor={ids[3]}")
    assert [shown(text) for text in (first, second, third)] == [ids[:2], ids[2:4], ids[4:]]
    assert ('rel="prev"' in first, 'rel="next"' in third) == (False, False)
    assert shown(get(client, f"{LIST}?cursor=-{ids[4]}")) == ids[2:4]
    assert shown(get(client, f"{LIST}?cursor=nonsense")) == ids[:2]


def test_a_pasted_id_leads_to_what_it_is_the_id_of(client, tenant):
    row = make_compile(tenant)
    receipt = make_receipts(row)[0]
    artifact = make_artifact(row)
    candidate = make_candidate(make_slice(row))
    page = f"{LIST}/{public_id(row)}"
    led = {
        public_id(row): page,
        public_id(receipt): page,
        public_id(artifact): f"/app/artifacts/{public_id(artifact)}",
        public_id(candidate): f"{page}/data?id={public_id(candidate)}",
    }
    for text, address in led.items():
        assert client.get(LIST, {"q": text})["Location"] == address
    stranger = make_compile(make_tenant())
    for text in (public_id(stranger), "cmp_" + "0" * 26, public_id(make_upload(tenant))):
        assert client.get(LIST, {"q": text}).status_code == 404


def test_two_compiles_stand_side_by_side(client, tenant):
    one = make_compile(tenant, sampling={"n_candidates": 12})
    two = make_compile(tenant, sampling={"n_candidates": 24})
    make_slice(one, selection={"method": "dpp", "n_groups": 7, "gap_detected": True})
    text = get(client, f"{LIST}/compare?compile={public_id(one)}&compile={public_id(two)}")
    assert "/sampling/n_candidates" in text
    assert "<bdi>12</bdi>" in text
    assert "<bdi>24</bdi>" in text
    assert "dpp" in text
    assert get(client, f"{LIST}/compare?ids={public_id(one)},{public_id(two)}").count("<td") == get(
        client, f"{LIST}/compare?ids={public_id(one)}&ids={public_id(two)}"
    ).count("<td")
    get(client, f"{LIST}/compare?compile={public_id(one)}", status=400)
    stranger = make_compile(make_tenant())
    get(client, f"{LIST}/compare?compile={public_id(one)}&compile={public_id(stranger)}", status=404)


def test_eight_are_compared_in_a_table_and_a_chart_and_nine_are_not(tenant, client):
    rows = [make_compile(tenant, sampling={"n_candidates": 12 + n}) for n in range(9)]
    for n, row in enumerate(rows[:7]):
        judged(row, ["refund", "other"] * 20 if n % 2 else ["refund", "other"] * 15 + ["refund"] * 10)
        change(row, spent_microusd=10_000 * (n + 1))
    ids = [public_id(row) for row in rows]
    text = get(client, f"{LIST}/compare?ids={','.join(ids[:8])}")
    assert "8 compiles" in text
    assert text.count('<circle class="s1"') == 7  # the last is not evaluated
    assert text.count('<line class="whisker"') == 7
    assert "<bdi>12</bdi>" in text
    assert "<bdi>19</bdi>" in text
    get(client, f"{LIST}/compare?ids={','.join(ids)}", status=400)


def test_specs_of_several_differ_place_by_place_from_the_first():
    found = list(shared_differences([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 4, "b": 2}]))
    assert [(one.pointer, one.values) for one in found] == [("/b", ["2", "3", "2"]), ("/a", ["1", "1", "4"])]


def test_specs_differ_place_by_place():
    first = {"a": 1, "b": [1, 2], "examples": {"inline": [{"x": 1}] * 5}}
    second = {"a": 1, "b": [1, 3, 4], "examples": {"inline": [{"x": 2}] * 4}, "c": "new"}
    found = [(d.pointer, d.first, d.second) for d in spec_differences(first, second)]
    assert found == [
        ("/b/1", "2", "3"),
        ("/b/2", "", "4"),
        ("/examples/inline", "5 entries", "4 entries"),
        ("/c", "", "new"),
    ]


def filled(tenant) -> Any:
    row = make_compile(tenant)
    pool, other = make_slice(row), make_slice(row, name="other", position=1)
    make_candidate(pool, text="kept one", state="trained", cluster=1, label="refund", votes={"refund": 5})
    make_candidate(pool, text="dropped one", state="dropped", cluster=1)
    make_candidate(pool, text="floored one", state="dropped", cluster=-1)
    make_candidate(other, text="too short", state="rejected", reasons=["length", "held_out"])
    with tenant_scope(tenant.id):
        Candidate.objects.filter(text="dropped one").update(origin="draft", certificate="exact")
    return row, pool


def test_candidates_are_filtered_and_say_why(client, tenant):
    row, pool = filled(tenant)
    path = f"{LIST}/{public_id(row)}/data"
    cases = {
        "": 4,
        "?state=dropped": 2,
        "?origin=draft": 1,
        "?reason=held_out": 1,
        f"?slice={public_id(pool)}": 3,
        f"?slice={public_id(pool)}&cluster=1": 2,
        "?slice=nonsense": 0,
        "?cluster=x": 4,
    }
    for query, n in cases.items():
        assert get(client, path + query).count("<tr data-row") == n, query
    text = get(client, path)
    assert "the spec&#x27;s length check, a held-out example" in text
    assert "among the lowest scores" in text
    assert "kept, labeled and trained on" in text
