"""The draft cache's door: what a selection did not keep is admitted once, with what a later look-up needs."""

from typing import Any
from uuid import UUID

import pytest

from backend.drafts.cache import DraftScope, Reject, admit
from backend.drafts.models import Draft
from backend.rest.new_ids import new_uuid7
from backend.tenants.models import Tenant
from backend.tenants.scope import tenant_scope
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

SCOPE = DraftScope(family="router", teacher="grammar/kolm-grammar-1@r1", embedder="minilm@sha256:0")


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def reject(n: int, *, candidate_id: UUID | None = None) -> Reject:
    return Reject(
        candidate_id=candidate_id or new_uuid7(),
        text=f"text {n}",
        text_key=f"key-{n}",
        score=0.25,
        signal="logprob",
        logprob=-3.5,
        token_logprobs=b"\x00\xbc",
        n_tokens=4,
        cost_microusd=2,
    )


def store(tenant: Tenant, rejects: list[Reject], **changes: Any) -> None:
    fields = {"scope": SCOPE, "slice_name": "refund", "slice_vector": [1.0] + [0.0] * 383} | changes
    with tenant_scope(tenant.id):
        admit(tenant.id, new_uuid7(), rejects, **fields)


def test_a_reject_is_kept_with_everything_that_was_paid_for(tenant):
    store(tenant, [reject(1)])
    with tenant_scope(tenant.id):
        draft = Draft.objects.get()
    kept = (draft.text, draft.score, draft.signal, draft.logprob, draft.n_tokens, draft.cost_microusd)
    assert kept == ("text 1", 0.25, "logprob", -3.5, 4, 2)
    assert (draft.family, draft.teacher, draft.slice_name) == ("router", SCOPE.teacher, "refund")
    assert bytes(draft.token_logprobs) == b"\x00\xbc"
    assert list(draft.slice_embedding)[:2] == [1.0, 0.0]


def test_a_candidate_that_is_admitted_again_is_one_draft(tenant):
    rejects = [reject(n) for n in range(3)]
    store(tenant, rejects)
    store(tenant, [*rejects[:2], reject(9)])
    with tenant_scope(tenant.id):
        assert sorted(Draft.objects.values_list("text", flat=True)) == ["text 0", "text 1", "text 2", "text 9"]


def test_many_rejects_go_in_at_once(tenant):
    store(tenant, [reject(n) for n in range(1200)])
    with tenant_scope(tenant.id):
        assert Draft.objects.count() == 1200


def test_what_is_rolled_back_with_its_picks_leaves_no_draft(tenant):
    def fail() -> None:
        with tenant_scope(tenant.id):
            admit(tenant.id, new_uuid7(), [reject(1)], scope=SCOPE, slice_name="x", slice_vector=[1.0] * 384)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with tenant_scope(tenant.id):
        assert not Draft.objects.exists()


def test_the_stats_count_by_family_and_teacher_and_only_ones_own(tenant, client):
    store(tenant, [reject(1), reject(2)])
    store(tenant, [reject(3)], scope=DraftScope(family="router", teacher="other", embedder="minilm@sha256:0"))
    store(make_tenant(), [reject(4)])
    shown = client.get("/v1/drafts/stats", headers=bearer(make_api_key(tenant))).json()["data"]
    assert [(s["teacher"], s["n_drafts"], s["n_tokens"], s["cost_microusd"]) for s in shown] == [
        (SCOPE.teacher, 2, 8, 4),
        ("other", 1, 4, 2),
    ]
