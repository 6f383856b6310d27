"""The lease: one holder at a time, and a holder that lost it writes nothing."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from backend.compiles import leases
from backend.compiles.events import append_event
from backend.compiles.leases import LeaseLost
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, CompileEvent, CompileLease, Outbox
from backend.domain.lifecycle import CompileStatus
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh, hold, lapse, make_compile
from tests.factories import make_tenant


@pytest.fixture
def row(db: None) -> Compile:
    return make_compile(make_tenant())


def lease_of(row: Compile) -> CompileLease:
    return CompileLease.objects.get(compile_id=row.id)


def test_a_due_compile_is_claimed_once(row):
    lease = leases.claim(row.id, owner="one")
    assert lease is not None
    assert (lease.tenant_id, lease.fence, lease.attempts) == (row.tenant_id, 1, 1)
    assert leases.claim(row.id, owner="two") is None
    assert lease_of(row).owner == "one"


def test_a_lapsed_lease_passes_on_with_a_higher_fence_and_counts_as_an_attempt(row):
    first = hold(row).lease
    lapse(first)
    second = leases.claim(row.id, owner="two")
    assert second is not None
    assert (second.fence, second.attempts) == (first.fence + 1, 2)
    with pytest.raises(LeaseLost):
        leases.heartbeat(first)
    assert leases.heartbeat(second) is False


def test_a_heartbeat_prolongs_also_a_lease_that_just_lapsed_unclaimed(row):
    lease = hold(row).lease
    lapse(lease)
    assert leases.heartbeat(lease) is False
    assert leases.claim(row.id, owner="two") is None


def test_effects_under_the_fence_are_kept_and_under_a_lost_one_never(row):
    first = hold(row)
    with first.transaction() as fenced:
        append_event(fenced.compile.tenant_id, fenced.compile.id, "kept")
    lapse(first.lease)
    hold(row, owner="two")
    with pytest.raises(LeaseLost), first.transaction() as fenced:
        append_event(fenced.compile.tenant_id, fenced.compile.id, "lost")
    with tenant_scope(row.tenant_id):
        assert [e.type for e in CompileEvent.objects.order_by("seq")] == ["compile.status", "kept"]


def test_after_a_release_the_fence_is_closed_too(row):
    run = hold(row)
    with run.transaction():
        leases.release(run.lease, due_in_s=0)
    with pytest.raises(LeaseLost), run.transaction():
        pass
    with pytest.raises(LeaseLost):
        leases.heartbeat(run.lease)


def test_a_release_says_when_to_look_again(row):
    run = hold(row)
    with run.transaction():
        leases.release(run.lease, due_in_s=30)
    assert leases.claim(row.id, owner="early") is None
    leases.wake(row.tenant_id, row.id)
    again = leases.claim(row.id, owner="woken")
    assert again is not None
    assert again.attempts == 1, "waiting for a runner is no failed attempt"


def test_a_retry_keeps_counting_and_a_finished_step_starts_the_count_anew(row):
    run = hold(row)
    with run.transaction():
        leases.release(run.lease, due_in_s=0, is_retry=True)
    run = hold(row)
    assert (run.lease.attempts, leases.attempts_of(run.lease)) == (2, 2)
    with run.transaction():
        leases.note_progress(run.lease)
    assert leases.attempts_of(run.lease) == 0


def test_the_lease_of_an_ended_compile_is_never_due(row):
    run = hold(row)
    with run.transaction():
        leases.release(run.lease, due_in_s=None)
    assert lease_of(row).due_at is None
    assert leases.claim(row.id, owner="two") is None


def test_a_canceled_queued_compile_is_taken_off_the_list_by_whoever_looks_next(row):
    from workers.pipeline import advance

    with tenant_scope(row.tenant_id):
        transitions.cancel(row.tenant_id, row.id)
    advance(row.id)
    assert fresh(row).status == CompileStatus.CANCELED
    assert lease_of(row).due_at is None


def test_waking_makes_due_and_hints_in_the_same_transaction(row):
    before = Outbox.objects.filter(ids__compile_id=str(row.id)).count()
    leases.wake(row.tenant_id, row.id)
    rows = Outbox.objects.filter(ids__compile_id=str(row.id))
    assert rows.count() == before + 1
    assert rows.last().ids == {"tenant_id": str(row.tenant_id), "compile_id": str(row.id)}


def test_sixteen_workers_that_claim_at_once_get_one_lease(committed_db):
    row = make_compile(make_tenant())
    together = threading.Barrier(16)

    def claim(i: int) -> Any:
        try:
            together.wait()
            return leases.claim(row.id, owner=str(i))
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as threads:
        held = [lease for lease in threads.map(claim, range(16)) if lease is not None]
    assert [lease.fence for lease in held] == [1]


def test_a_takeover_waits_for_the_effect_that_is_being_committed(committed_db):
    """A holder inside a fenced transaction has the lease row locked: the next claim comes after its commit, never in
    between."""
    row = make_compile(make_tenant())
    run = hold(row)
    inside, done = threading.Event(), []

    def take_over() -> None:
        try:
            inside.wait()
            lapse(run.lease)
            done.append(leases.claim(row.id, owner="two"))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(take_over)
        with run.transaction() as fenced:
            inside.set()
            time.sleep(0.3)
            assert done == []
            append_event(fenced.compile.tenant_id, fenced.compile.id, "kept")
        other.result()
    assert done[0].fence == run.lease.fence + 1
    with tenant_scope(row.tenant_id):
        assert CompileEvent.objects.filter(compile=row, type="kept").exists()
