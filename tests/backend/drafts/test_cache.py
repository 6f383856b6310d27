"""The draft cache's doors: what a selection leaves is admitted once and comes out again, to its own scope alone."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest
from django.db import connection

from backend.drafts.cache import find_scope, nearest_drafts, prompts_of
from backend.drafts.models import Draft, FamilyKey, Scope, Source
from backend.drafts.purging import purge_family
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.draft_factories import SCOPE, admitted, axis, expire, n_rows, of_family, store, unit_rows, write_verdict
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    return make_tenant()


def near(tenant, vector, *, scope=SCOPE, n_sources=4, seed=0):
    with tenant_scope(tenant.id):
        row = find_scope(tenant.id, scope)
        return [] if row is None else nearest_drafts(tenant.id, row, [vector], n_sources=n_sources, seed=seed)[0]


def texts(sources):
    return sorted(draft.text for source in sources for draft in source.drafts)


def test_a_candidate_comes_out_with_everything_that_was_paid_for(tenant):
    full = admitted("Wo bleibt mein Geld? 🧾", tokens=("Wo", " bleibt"), token_logprobs=(-0.5, -1.25), n_tokens=2)
    source_id = store(tenant, [full], slice_text="Erstattung")
    (source,) = near(tenant, axis(0))
    (draft,) = source.drafts
    assert (source.source_id, draft.source_id) == (source_id, source_id)
    assert source.distance == draft.distance == pytest.approx(0, abs=1e-3)
    assert (draft.text, draft.tokens, draft.token_logprobs) == (full.text, full.tokens, full.token_logprobs)
    assert (draft.n_tokens, draft.logprob, draft.is_kept) == (2, -3.5, False)
    with tenant_scope(tenant.id):
        row = Draft.objects.get()
        assert (row.score, row.signal, row.cost_microusd, row.root_id, row.depth) == (0.25, "logprob", 2, None, 0)
        assert prompts_of(tenant.id, SCOPE.family, [source_id])[source_id].slice_text == "Erstattung"


def test_a_candidate_that_is_admitted_again_is_one_draft(tenant):
    candidates = [admitted(f"text {n}") for n in range(3)]
    store(tenant, candidates)
    assert store(tenant, candidates) is None
    store(tenant, [*candidates[:2], admitted("text 9")])
    assert texts(near(tenant, axis(0))) == ["text 0", "text 1", "text 2", "text 9"]
    assert n_rows(tenant, "drafts_source") == 2


def test_the_same_text_twice_in_a_slice_is_one_draft(tenant):
    store(tenant, ["twice", "twice", "once"])
    assert texts(near(tenant, axis(0))) == ["once", "twice"]


def test_many_candidates_go_in_at_once(tenant):
    store(tenant, [f"text {n}" for n in range(1200)])
    assert n_rows(tenant, "drafts_draft") == 1200


def test_what_is_rolled_back_with_its_picks_leaves_nothing(tenant):
    with pytest.raises(RuntimeError), tenant_scope(tenant.id):  # noqa: PT012
        store(tenant, ["gone"])
        raise RuntimeError
    assert [n_rows(tenant, f"drafts_{name}") for name in ("draft", "source", "scope", "familykey")] == [0, 0, 0, 0]


def test_concurrent_admissions_of_a_new_family_make_one_key_and_one_scope_and_lose_nothing(tenant):
    barrier = Barrier(8)

    def work(n: int) -> None:
        barrier.wait()
        store(tenant, [f"text {n}.{i}" for i in range(4)], vector=axis(n))
        connection.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert [n_rows(tenant, f"drafts_{name}") for name in ("familykey", "scope", "source")] == [1, 1, 8]
    assert len(texts(near(tenant, axis(0), n_sources=8))) == 32


def test_the_nearest_sources_are_those_of_a_full_comparison(tenant):
    rows = unit_rows(60)
    for n, row in enumerate(rows):
        store(tenant, [f"text {n}"], vector=row.tolist())
    asked = unit_rows(5, seed=1)
    with tenant_scope(tenant.id):
        found = nearest_drafts(tenant.id, find_scope(tenant.id, SCOPE), asked, n_sources=7, seed=0)
    for row, sources in zip(1 - asked @ rows.T, found, strict=True):
        assert [source.drafts[0].text for source in sources] == [f"text {n}" for n in np.argsort(row)[:7]]
        assert np.allclose([source.distance for source in sources], np.sort(row)[:7], atol=2e-3)


@pytest.mark.parametrize("d", [3, 1280, 1281, 1536])
def test_vectors_of_any_width_go_in_and_come_out(tenant, d):
    rows = unit_rows(12, d)
    for n, row in enumerate(rows):
        store(tenant, [f"text {n}"], vector=row.tolist())
    (nearest, *_) = near(tenant, rows[5].tolist())
    assert (nearest.drafts[0].text, nearest.distance) == ("text 5", pytest.approx(0, abs=1e-3))


@pytest.mark.nightly
def test_vectors_wider_than_an_index_holds_keep_their_cosines_about(tenant):
    rows = unit_rows(40, 2048)
    for n, row in enumerate(rows):
        store(tenant, [f"text {n}"], vector=row.tolist())
    found = {source.drafts[0].text: source.distance for source in near(tenant, rows[0].tolist(), n_sources=40)}
    error = [abs(found[f"text {n}"] - (1 - float(rows[0] @ rows[n]))) for n in range(40)]
    assert max(error) < 5 / np.sqrt(1280), "a random projection's, five standard deviations"


@pytest.mark.parametrize("changed", ["family", "teacher", "embedder"])
def test_a_draft_of_another_scope_is_never_offered(tenant, changed):
    store(tenant, ["mine"])
    assert near(tenant, axis(0), scope=replace(SCOPE, **{changed: "another"})) == []
    assert near(make_tenant(), axis(0)) == []


def test_an_expired_draft_is_never_offered_and_its_source_takes_nobodys_place(tenant):
    old, new = store(tenant, ["old"]), store(tenant, ["new"], vector=[0.0, 1.0] + [0.0] * 382)
    with tenant_scope(tenant.id):
        draft_id = Draft.objects.get(source_id=old).id
    expire(tenant, drafts_draft=draft_id)
    assert [source.source_id for source in near(tenant, axis(0), n_sources=1)] == [new]


def test_a_live_draft_is_found_behind_any_number_of_dead_ones(tenant):
    dead = [store(tenant, [f"dead {i}"]) for i in range(30)]
    alive = store(tenant, ["alive"], vector=axis(1))
    with tenant_scope(tenant.id):
        Draft.objects.filter(source_id__in=dead).update(state="quarantined")
    assert [source.source_id for source in near(tenant, axis(0), n_sources=1)] == [alive]


def test_a_quarantined_draft_is_not_offered(tenant):
    store(tenant, ["bad", "good"])
    with tenant_scope(tenant.id):
        worst = Draft.objects.order_by("id").first()
        Draft.objects.filter(id=worst.id).update(state="quarantined")
    assert len(texts(near(tenant, axis(0)))) == 1


def test_the_order_of_a_sources_drafts_is_by_the_seed_alone(tenant):
    store(tenant, [admitted(f"text {n}", score=float(n)) for n in range(12)])

    def order(seed: int) -> list[str]:
        (source,) = near(tenant, axis(0), seed=seed)
        return [draft.text for draft in source.drafts]

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) == 5


def test_what_was_offered_and_then_purged_is_gone_and_its_verdicts_can_still_be_written(tenant):
    store(tenant, ["gone soon"])
    (source,) = near(tenant, axis(0))
    purge_family(tenant.id, SCOPE.family)
    write_verdict(tenant, source.drafts[0])
    with tenant_scope(tenant.id):
        counted = Source.objects.filter(tenant_id=tenant.id, id=source.source_id).update(n_shown=1)
    assert (counted, n_rows(tenant, "drafts_verdict")) == (0, 1)
    store(tenant, ["new"])
    assert texts(near(tenant, axis(0))) == ["new"]


def test_families_have_keys_of_their_own_and_no_text_is_in_a_row(tenant):
    store(tenant, ["secret text"], scope=of_family("a"))
    store(tenant, ["secret text"], scope=of_family("b"))
    with tenant_scope(tenant.id):
        rows = list(Draft.objects.all())
        vectors = [np.asarray(row.embedding) for row in Source.objects.all()]
        assert FamilyKey.objects.count() == Scope.objects.count() == 2
    assert len({bytes(row.text_mac) for row in rows}) == 2
    assert all(b"secret" not in bytes(row.text_sealed) for row in rows)
    assert abs(float(vectors[0] @ vectors[1])) < 0.3, "the same slice, turned by two keys"


def test_a_candidate_needs_an_id_of_its_own_within_a_tenant_only(tenant):
    candidate = admitted("text", candidate_id=new_uuid7())
    assert store(tenant, [candidate]) is not None
    assert store(make_tenant(), [candidate]) is not None
