"""The size budget: what is worth least per byte goes, and of nobody else's."""

import os
import secrets
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from backend.drafts.eviction import held_bytes, shrink
from backend.drafts.models import Draft, LabelDraft, Source
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.draft_factories import admitted, axis, n_rows, store, store_label
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    return make_tenant()


def held(tenant: Tenant) -> int:
    with tenant_scope(tenant.id):
        return held_bytes(tenant.id)


def kept(tenant: Tenant) -> set[str]:
    """Ids of what is still there."""
    with tenant_scope(tenant.id):
        return {str(id) for model in (Draft, Source, LabelDraft) for id in model.objects.values_list("id", flat=True)}


def change(model: type, id: object, **values: object) -> None:
    assert model.objects.filter(id=id).update(**values) == 1


def ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)


def worth(draft: Draft, n_siblings: int) -> float:
    """The rule again, in its own words: expected tokens spared per byte."""
    if draft.state != "live":
        return 0.0
    of_source = (draft.source.n_accepted + 1) / (draft.source.n_shown + 3)
    of_draft = (draft.n_accepted + 2 * of_source) / (draft.n_shown + 2)
    decay = 0.5 ** ((timezone.now() - draft.created_at) / timedelta(days=30))
    return of_draft * draft.n_tokens * decay / (draft.n_bytes + draft.source.n_bytes / n_siblings)


def worths(tenant: Tenant) -> dict[str, float]:
    """Of everything that can go by itself: drafts, label drafts, sources without drafts."""
    with tenant_scope(tenant.id):
        drafts = list(Draft.objects.select_related("source"))
        n_siblings = Counter(draft.source_id for draft in drafts)
        empty = list(Source.objects.exclude(id__in=n_siblings).values_list("id", flat=True))
        labels = {str(row.id): row.output_tokens / 3 / row.n_bytes for row in LabelDraft.objects.all()}
    return {str(d.id): worth(d, n_siblings[d.source_id]) for d in drafts} | labels | dict.fromkeys(map(str, empty), 0.0)


def size(tenant: Tenant, id: str) -> int:
    """What goes with a thing at most: itself, and a draft's source."""
    with tenant_scope(tenant.id):
        draft = Draft.objects.filter(id=id).select_related("source").first()
        if draft is not None:
            return draft.n_bytes + draft.source.n_bytes
        return next(row.n_bytes for model in (LabelDraft, Source) for row in model.objects.filter(id=id))


SHOWN = st.integers(0, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))  # (shown, accepted)
STATE = st.sampled_from(["live", "live", "quarantined"])
DRAFT = st.tuples(SHOWN, st.integers(1, 400), st.integers(1, 3000), st.floats(0, 200), STATE)
SLICES = st.lists(st.tuples(SHOWN, st.lists(DRAFT, max_size=5)), min_size=1, max_size=6)


def fill(tenant: Tenant, slices: list[Any]) -> None:
    """Sources with such verdicts, and drafts of so many tokens, bytes and days; some sources have none."""
    with tenant_scope(tenant.id):
        for (shown, accepted), drafts in slices:
            texts = [admitted(secrets.token_hex(n_bytes), n_tokens=n) for _, n, n_bytes, *_ in drafts]
            source_id = store(tenant, texts or ["-"], vector=axis(0, 8))
            change(Source, source_id, n_shown=shown, n_accepted=accepted)
            rows = Draft.objects.filter(source_id=source_id).order_by("id")
            if not drafts:
                rows.delete()
            for row, ((n, k), _, _, days, state) in zip(rows, drafts, strict=True):
                change(Draft, row.id, n_shown=n, n_accepted=k, state=state, created_at=ago(days))


@pytest.mark.nightly
@given(slices=SLICES, n_labels=st.integers(0, 3), share=st.floats(0.05, 1.1))
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_the_worst_goes_first_down_to_the_mark_and_no_further(settings, slices, n_labels, share):
    tenant, other = make_tenant(), make_tenant()
    store(other, ["theirs"])
    fill(tenant, slices)
    for n in range(n_labels):
        store_label(tenant, f"prompt {n}", ["a", "b"] * (n + 1))
    before, held_before, value = kept(tenant), held(tenant), worths(tenant)
    sizes = {id: size(tenant, id) for id in value}
    settings.KOLM_DRAFT_BYTES_PER_TENANT = budget = int(held_before * share)

    n_gone = shrink(tenant.id)

    gone = before - kept(tenant)
    assert n_gone == len(gone)
    assert (gone == set()) == (held_before <= budget)
    if gone:
        assert held(tenant) <= 0.9 * budget
        worst_kept = min((value[id] for id in value if id not in gone), default=1e9)
        best_gone = max(value[id] for id in gone & set(value))
        assert best_gone <= worst_kept * (1 + 1e-6)
        last = max(sizes[id] for id in gone & set(value) if value[id] >= best_gone * (1 - 1e-6))
        assert held(tenant) + last > int(0.9 * budget), "the last one that went had to go"
    assert n_rows(other, "drafts_draft") == 1


def test_below_the_budget_nothing_goes(tenant, settings):
    store(tenant, ["a", "b"])
    settings.KOLM_DRAFT_BYTES_PER_TENANT = held(tenant)
    assert shrink(tenant.id) == 0
    assert n_rows(tenant, "drafts_draft") == 2


def test_a_draft_that_is_shown_in_vain_goes_before_one_that_was_never_shown(tenant, settings):
    source_id = store(tenant, ["in vain", "never"])
    with tenant_scope(tenant.id):
        vain, never = Draft.objects.order_by("id")
        change(Draft, vain.id, n_shown=5)
        change(Source, source_id, n_shown=5)
    settings.KOLM_DRAFT_BYTES_PER_TENANT = held(tenant) - 1
    assert shrink(tenant.id) == 1
    assert str(never.id) in kept(tenant)


def test_label_drafts_are_counted_and_evicted_too(tenant, settings):
    for n in range(20):
        store_label(tenant, f"prompt {n}", ["a"])
    settings.KOLM_DRAFT_BYTES_PER_TENANT = held(tenant) // 2
    assert shrink(tenant.id) >= 10
    assert held(tenant) <= settings.KOLM_DRAFT_BYTES_PER_TENANT


def test_two_at_once_evict_no_more_than_one(tenant, settings):
    for n in range(30):
        store(tenant, [f"text {n}.{i}" for i in range(4)], vector=axis(n))
    settings.KOLM_DRAFT_BYTES_PER_TENANT = held(tenant) // 2
    barrier = Barrier(4)

    def work(_: int) -> int:
        barrier.wait()
        n_gone = shrink(tenant.id)
        connection.close()
        return n_gone

    n_before = len(kept(tenant))
    with ThreadPoolExecutor(4) as threads:
        n_gone = sum(threads.map(work, range(4)))
    assert n_gone == n_before - len(kept(tenant))
    budget = settings.KOLM_DRAFT_BYTES_PER_TENANT
    assert 0.8 * budget < held(tenant) <= 0.9 * budget


def test_admissions_that_go_on_meanwhile_are_not_harmed(tenant, settings):
    settings.KOLM_DRAFT_BYTES_PER_TENANT = 60_000

    def work(n: int) -> None:
        for i in range(12):
            assert store(tenant, [f"text {n}.{i}.{j}" for j in range(4)], vector=axis(n)) is not None
            shrink(tenant.id)
        connection.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    shrink(tenant.id)
    assert held(tenant) <= 60_000
    with tenant_scope(tenant.id):
        assert Draft.objects.exists()
        assert not Source.objects.filter(drafts=None).exists()


def test_the_counted_bytes_are_close_to_what_the_tables_take(tenant):
    """`n_bytes` has a constant for the row and its index entries; with 600 drafts it is within a factor of two. What
    other tests took back still has room in the same partitions: these rows take no more than the partitions have now,
    and no less than they grew by."""
    store(tenant, ["the first one shows which partitions"])
    before = taken_by(tenant)
    for n in range(60):
        store(tenant, [os.urandom(300).hex() for _ in range(10)], vector=axis(n))
    after = taken_by(tenant)
    assert held(tenant) > 0.5 * (after - before), (held(tenant), before, after)
    assert held(tenant) < 2 * after


def taken_by(tenant: Tenant) -> int:
    """Bytes of the partitions that have the tenant's drafts and sources, indexes and all."""
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(t)) FROM (SELECT tableoid AS t FROM drafts_draft WHERE tenant_id = %(t)s"
            " UNION SELECT tableoid FROM drafts_source WHERE tenant_id = %(t)s) parts",
            {"t": tenant.id},
        )
        return int(cursor.fetchone()[0])
