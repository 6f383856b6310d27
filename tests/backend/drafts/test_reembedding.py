"""A new embedder: what the old one placed is not seen, is embedded again, and then is."""

from dataclasses import replace

import numpy as np
import pytest

from backend.drafts.cache import find_scope, nearest_drafts
from backend.drafts.models import Draft, LabelDraft, Source
from backend.drafts.purging import purge_family
from backend.drafts.reembedding import move_sources, stale_scopes
from backend.queue import TaskName
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.draft_factories import SCOPE, axis, n_rows, store, store_label
from tests.factories import make_tenant
from workers import tasks

pytestmark = pytest.mark.usefixtures("committed_db")

NEW = replace(SCOPE, embedder="minilm-2@sha256:1")
WIDTH = 16  # of the new embedder; the old one's vectors have 384


def embed(texts: list[str]):
    """`slice 7` lies on axis 7 of the new space."""
    return np.asarray([axis(int(text.split()[1]), WIDTH) for text in texts], dtype=np.float32)


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    tenant = make_tenant()
    for n in range(10):
        store(tenant, [f"draft {n}.{i}" for i in range(3)], slice_text=f"slice {n}", vector=axis(n))
    return tenant


def old_scope(tenant):
    with tenant_scope(tenant.id):
        return find_scope(tenant.id, SCOPE)


def offered(tenant, n, *, scope=NEW, width=WIDTH):
    with tenant_scope(tenant.id):
        row = find_scope(tenant.id, scope)
        found = [] if row is None else nearest_drafts(tenant.id, row, [axis(n, width)], n_sources=1, seed=0)[0]
    return sorted(draft.text for source in found for draft in source.drafts)


def move_all(tenant, **options):
    scope, n_moved = old_scope(tenant), 0
    while n := move_sources(tenant.id, scope.id, embed, NEW.embedder, **options):
        n_moved += n
    return n_moved


def stale(tenant, embedder=NEW.embedder):
    with tenant_scope(tenant.id):
        return [row.id for row in stale_scopes(tenant.id, SCOPE.family, SCOPE.teacher, embedder)]


def test_sources_of_another_embedder_are_not_offered_until_they_are_moved_and_then_are(tenant):
    assert offered(tenant, 3) == []
    assert stale(tenant) == [old_scope(tenant).id]
    assert move_all(tenant, batch=4) == 10
    assert offered(tenant, 3) == ["draft 3.0", "draft 3.1", "draft 3.2"]
    assert offered(tenant, 3, scope=SCOPE, width=384) == []
    assert stale(tenant) == []
    with tenant_scope(tenant.id):
        new = find_scope(tenant.id, NEW)
        assert set(Draft.objects.values_list("scope_id", flat=True)) == {new.id}
        assert set(Source.objects.values_list("scope_id", flat=True)) == {new.id}


def test_a_move_that_is_killed_in_the_middle_is_gone_on_with(tenant):
    calls = 0

    def dies(texts: list[str]):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return embed(texts)

    scope = old_scope(tenant)
    moved = iter(lambda: move_sources(tenant.id, scope.id, dies, NEW.embedder, batch=3), 0)
    with pytest.raises(KeyboardInterrupt):
        list(moved)
    assert len(offered(tenant, 0)) == 3, "what was moved is seen"
    assert offered(tenant, 9) != offered(tenant, 9, scope=SCOPE, width=384)
    assert move_all(tenant) == 4
    assert all(len(offered(tenant, n)) == 3 for n in range(10))


def test_two_that_move_the_same_batch_move_it_once(tenant):
    inner: list[int] = []

    def embed_while_another_moves(texts: list[str]):
        if not inner:
            inner.append(move_sources(tenant.id, old_scope(tenant).id, embed, NEW.embedder, batch=64))
        return embed(texts)

    assert move_sources(tenant.id, old_scope(tenant).id, embed_while_another_moves, NEW.embedder, batch=64) == 0
    assert inner == [10]
    assert (n_rows(tenant, "drafts_source"), n_rows(tenant, "drafts_draft")) == (10, 30)
    assert len(offered(tenant, 5)) == 3


def test_a_family_that_is_purged_while_its_slices_are_embedded_stays_purged(tenant):
    scope = old_scope(tenant)

    def embed_while_purged(texts: list[str]):
        purge_family(tenant.id, SCOPE.family)
        return embed(texts)

    assert move_sources(tenant.id, scope.id, embed_while_purged, NEW.embedder) == 0
    assert [n_rows(tenant, f"drafts_{name}") for name in ("familykey", "scope", "source", "draft")] == [0, 0, 0, 0]


def test_what_is_admitted_meanwhile_by_an_old_worker_is_moved_later(tenant):
    move_all(tenant)
    store(tenant, ["late"], slice_text="slice 11", vector=axis(11))
    assert stale(tenant) == [old_scope(tenant).id]
    assert move_all(tenant) == 1
    assert offered(tenant, 11) == ["late"]


def test_label_drafts_and_other_teachers_and_the_scope_in_use_are_left_alone(tenant):
    store_label(tenant, "prompt", ["a"])
    other = replace(SCOPE, teacher="another")
    store(tenant, ["x"], scope=other)
    with tenant_scope(tenant.id):
        label_scope = LabelDraft.objects.get().scope
        other_row = find_scope(tenant.id, other)
    assert stale(tenant) == [old_scope(tenant).id]
    assert stale(tenant, SCOPE.embedder) == []
    assert move_sources(tenant.id, label_scope.id, embed, NEW.embedder) == 0
    assert move_sources(tenant.id, old_scope(tenant).id, embed, SCOPE.embedder) == 0
    assert move_sources(make_tenant().id, other_row.id, embed, NEW.embedder) == 0, "not one's own"


class Embedder:
    identity = NEW.embedder

    def embed(self, texts: list[str]):
        return embed(texts)


def test_the_task_moves_all_of_a_scope_and_hints_at_the_rest_after_its_turn(tenant, monkeypatch):
    monkeypatch.setattr(tasks, "load_embedder", lambda name: {"minilm-2": Embedder()}[name])
    sent: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(tasks, "enqueue", lambda name, **ids: sent.append((name, ids)))
    ids = {"tenant_id": str(tenant.id), "scope_id": str(old_scope(tenant).id), "embedder": "minilm-2"}
    monkeypatch.setattr(tasks, "TURN_S", -1.0)
    tasks.reembed_drafts(**ids)
    assert sent == [(TaskName.DRAFTS_REEMBED, ids)]
    assert len(offered(tenant, 0)) == 3
    monkeypatch.setattr(tasks, "TURN_S", 60.0)
    tasks.reembed_drafts(**ids)
    assert len(sent) == 1
    assert stale(tenant) == []
