"""POST /v1/drafts/preview and the estimate's `draft_cache`: asked of a worker, waited for, and never a reason to wait
long. The far side is a thread that answers as a worker does; what the worker computes is tested with the stages."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from backend import queue
from backend.compiles.api import compiles
from backend.domain.drafts.vocabulary import Arm, Strategy
from backend.drafts import api
from backend.drafts.models import Preview
from backend.drafts.previews import PreviewedSlice, answer, fail, question
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.valkey import pause
from tests.backend.drafts.rows import make_drafts
from tests.compile_factories import small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

Worker = Callable[[UUID, UUID], None]


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture(autouse=True)
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PREVIEW_WAIT_S", 20)
    monkeypatch.setattr(compiles, "DRAFTS_WAIT_S", 20)
    pause.note_answer()  # a test before took Redis away, less than a second ago


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch, long_waits: None) -> None:
    """Of the tests without a worker."""
    monkeypatch.setattr(api, "PREVIEW_WAIT_S", 0.4)
    monkeypatch.setattr(compiles, "DRAFTS_WAIT_S", 0.4)


def ask(tenant: Tenant, path: str, body: Any = None, *, scopes: list[str] | None = None) -> Any:
    headers = bearer(make_api_key(tenant, scopes=scopes or ["drafts:read", "compiles:read"]))
    data = json.dumps(small_spec() if body is None else body)
    return Client().post(path, data, content_type="application/json", headers=headers)


def preview(tenant: Tenant, body: Any = None, **changes: Any) -> Any:
    return ask(tenant, "/v1/drafts/preview", body, **changes)


def estimated(tenant: Tenant, query: str = "?drafts=true", **changes: Any) -> Any:
    answer = ask(tenant, f"/v1/compiles/estimate{query}", small_spec(**changes))
    assert answer.status_code == 200, answer.content
    return answer.json()["draft_cache"]


def slice_of(**changes: Any) -> PreviewedSlice:
    fields: dict[str, Any] = {
        "name": "refund",
        "strategy": Strategy.JUDGE,
        "arm": Arm.OFFERED,
        "n_sources": 2,
        "nearest_distance": 0.125,
        "n_drafts": 9,
        "n_shown": 6,
        "expected_accepted": 4.126,
        "acceptance_low": 0.4,
        "acceptance_high": 0.8,
        "fresh_microusd": 2.5,
        "expected_avoided_microusd": 10.4,
        "expected_verification_microusd": 3.2,
        "expected_net_microusd": 7.2,
        "break_even": 0.21,
        "reason": "Pays.",
    }
    return PreviewedSlice(**(fields | changes))


def nothing(name: str = "other") -> PreviewedSlice:
    return slice_of(name=name, strategy=None, arm=Arm.NO_DRAFTS, n_sources=0, nearest_distance=None, n_drafts=0,
                    n_shown=0, expected_accepted=0.0, acceptance_low=None, acceptance_high=None, fresh_microusd=None,
                    expected_avoided_microusd=0.0, expected_verification_microusd=0.0, expected_net_microusd=0.0,
                    break_even=None, reason="Nothing near.")  # fmt: skip


@contextmanager
def worker(tenant: Tenant, *slices: PreviewedSlice, fails: str = "") -> Iterator[list[dict[str, Any]]]:
    """Answers every question of the tenant; yields the specs that were asked about."""
    specs: list[dict[str, Any]] = []
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.wait(0.02):
                with tenant_scope(tenant.id):
                    ids = list(Preview.objects.filter(status="queued").values_list("id", flat=True))
                for id in ids:
                    specs.append(question(tenant.id, id) or {})
                    if fails:
                        fail(tenant.id, id, fails)
                    else:
                        answer(tenant.id, id, slices)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield specs
    finally:
        stop.set()
        thread.join(timeout=10)


def rows(tenant: Tenant) -> int:
    with tenant_scope(tenant.id):
        return Preview.objects.count()


def test_the_worker_is_asked_about_the_whole_spec_and_its_answer_is_told(tenant):
    with worker(tenant, slice_of(), nothing()) as specs:
        found = preview(tenant)
    assert found.status_code == 200, found.content
    body = found.json()
    assert (body["object"], body["family"]) == ("draft_preview", "router")
    assert body["slices"][0] == {
        "slice": "refund",
        "strategy": "judge",
        "arm": "offered",
        "n_sources": 2,
        "nearest_distance_ppm": 125_000,
        "n_drafts": 9,
        "n_shown": 6,
        "expected_accepted": 4.13,
        "acceptance_low_ppm": 400_000,
        "acceptance_high_ppm": 800_000,
        "fresh_microusd": 2.5,
        "expected_avoided_microusd": 10,
        "expected_verification_microusd": 3,
        "expected_net_microusd": 7,
        "break_even_ppm": 210_000,
        "reason": "Pays.",
    }
    assert body["slices"][1]["reason"] == "Nothing near."
    assert body["slices"][1]["nearest_distance_ppm"] is None
    (spec,) = specs
    assert (spec["name"], spec["sampling"]["n_candidates"] > 0) == ("router", True)


def test_the_total_is_summed_before_it_is_rounded(tenant):
    small = {"expected_avoided_microusd": 0.4, "expected_verification_microusd": 0.1, "expected_net_microusd": 0.3}
    with worker(tenant, *(slice_of(**small) for _ in range(10)), nothing()):
        total = preview(tenant).json()["total"]
    assert total == {
        "n_slices": 11,
        "n_slices_offered": 10,
        "n_drafts": 90,
        "n_shown": 60,
        "expected_accepted": 41.26,
        "expected_avoided_microusd": 4,
        "expected_verification_microusd": 1,
        "expected_net_microusd": 3,
    }


def test_a_loss_is_told_as_one_and_what_is_not_finite_as_nothing(tenant):
    with worker(tenant, slice_of(expected_net_microusd=-12.0, break_even=float("inf"))):
        (found,) = preview(tenant).json()["slices"]
    assert (found["expected_net_microusd"], found["break_even_ppm"]) == (-12, None)


def test_the_question_is_gone_once_it_is_answered(tenant):
    with worker(tenant, slice_of()):
        preview(tenant)
    assert rows(tenant) == 0


@pytest.mark.usefixtures("short_waits")
def test_when_no_worker_answers_in_time_that_is_said_and_the_question_is_withdrawn(tenant):
    found = preview(tenant)
    assert (found.status_code, found.json()["code"], found.json()["retryable"]) == (503, "no_worker", True)
    assert rows(tenant) == 0


def test_an_answer_that_comes_too_late_changes_nothing(tenant):
    with tenant_scope(tenant.id):
        row = Preview.objects.create(tenant_id=tenant.id, spec={})
        row.delete()
    answer(tenant.id, row.id, [slice_of()])
    assert (question(tenant.id, row.id), rows(tenant)) == (None, 0)


def test_a_worker_that_fails_ends_the_wait_at_once(tenant, monkeypatch):
    monkeypatch.setattr(api, "PREVIEW_WAIT_S", 60.0)
    began = time.monotonic()
    with worker(tenant, fails="the price is gone"):
        found = preview(tenant)
    assert (found.status_code, found.json()["code"]) == (503, "preview_failed")
    assert "the price is gone" in found.json()["detail"]
    assert time.monotonic() - began < 10


def test_with_redis_away_nobody_waits(tenant, settings, monkeypatch):
    monkeypatch.setattr(api, "PREVIEW_WAIT_S", 60.0)
    settings.REDIS_URL = "redis://127.0.0.1:1"
    queue._app.cache_clear()
    began = time.monotonic()
    try:
        found = preview(tenant)
    finally:
        queue._app.cache_clear()
        pause.note_answer()
    assert (found.status_code, found.json()["code"]) == (503, "no_worker")
    assert time.monotonic() - began < 10
    assert rows(tenant) == 0


@pytest.mark.parametrize("body", [{}, [], "x", small_spec(task="")])
def test_what_is_no_spec_asks_nobody(tenant, body):
    found = preview(tenant, body)
    assert (found.status_code, found.json()["code"]) == (422, "invalid_spec")
    assert rows(tenant) == 0


def test_a_preview_needs_the_scope_to_read_drafts(tenant):
    assert preview(tenant, scopes=["compiles:write"]).status_code == 403


def test_nobody_elses_question_is_answered(tenant):
    """A worker answers in the tenant's scope: with another tenant's id it finds nothing."""
    other = make_tenant()
    with tenant_scope(other.id):
        row = Preview.objects.create(tenant_id=other.id, spec={"task": "theirs"})
    assert question(tenant.id, row.id) is None
    answer(tenant.id, row.id, [slice_of()])
    assert question(other.id, row.id) == {"task": "theirs"}


def test_an_estimate_says_nothing_of_drafts_unless_it_is_asked(tenant):
    make_drafts(tenant, "a")
    assert estimated(tenant, "") is None
    assert estimated(tenant, "?drafts=false") is None


def test_an_estimate_takes_the_total_of_a_preview(tenant):
    make_drafts(tenant, "a")
    with worker(tenant, slice_of(), nothing()):
        found = estimated(tenant)
    assert (found["expected_net_microusd"], found["n_shown"], found["reason"]) == (7, 6, None)


def test_an_estimate_says_why_nothing_would_be_offered(tenant):
    make_drafts(tenant, "a")
    with worker(tenant, nothing("a"), nothing("b")):
        found = estimated(tenant)
    assert (found["expected_net_microusd"], found["n_shown"], found["reason"]) == (0, 0, "Nothing near.")


@pytest.mark.usefixtures("short_waits")
def test_an_estimate_without_a_worker_is_complete_but_for_the_drafts(tenant):
    make_drafts(tenant, "a")
    found = estimated(tenant)
    assert (found["expected_net_microusd"], found["n_drafts"]) == (None, None)
    assert found["reason"].startswith("No worker answered within 0.4 s")


def test_an_estimate_of_a_family_without_drafts_asks_no_worker(tenant):
    with worker(tenant, slice_of()) as specs:
        found = estimated(tenant)
        off = estimated(tenant, draft_cache={"verify": "off"})
    assert specs == []
    assert (found["expected_net_microusd"], found["reason"]) == (0, "There are no drafts of the family 'router' yet.")
    assert off["reason"].startswith("This spec offers no drafts")


def test_an_estimate_refuses_a_query_that_it_does_not_have(tenant):
    for query, pointer in (("?draft=true", "/draft"), ("?drafts=perhaps", "/drafts")):
        found = ask(tenant, f"/v1/compiles/estimate{query}")
        assert (found.status_code, found.json()["errors"][0]["pointer"]) == (400, pointer)
