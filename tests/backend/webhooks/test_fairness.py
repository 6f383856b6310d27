"""T15: nobody's backlog or black hole is in another's way. The sender's own loop, real receivers, real waiting."""

import time
from collections import Counter
from uuid import UUID

import pytest

from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.webhooks import claims
from backend.webhooks.models import DeliveryDue, DeliveryStatus, WebhookAttempt
from tests.factories import make_tenant
from tests.webhook_factories import deliveries_of, eventually, make_endpoint, make_event, sending
from tests.webhook_receiver import Answer, Receiver

pytestmark = pytest.mark.usefixtures("committed_db", "nothing_due")

N_BLACK_HOLED = 1_000
N_OTHERS = 6


def due(tenant_id: UUID, endpoint_id: UUID, n: int) -> None:
    from django.utils import timezone

    DeliveryDue.objects.bulk_create(
        DeliveryDue(delivery_id=new_uuid7(), tenant_id=tenant_id, endpoint_id=endpoint_id, due_at=timezone.now())
        for _ in range(n)
    )


@pytest.mark.nightly
def test_a_black_holed_endpoint_with_a_thousand_events_delays_nobody_else(receiver: Receiver) -> None:
    receiver.answer = lambda received: Answer(hold_s=60 if "hole" in received.path else 0)
    noisy, others = make_tenant(), [make_tenant() for _ in range(N_OTHERS)]
    make_endpoint(noisy, receiver.url + "/hole")
    for tenant in others:
        make_endpoint(tenant, f"{receiver.url}/{tenant.id}")
    with sending():
        for number in range(N_BLACK_HOLED):
            make_event(noisy, number=number)
            if number % 100 == 50:
                for tenant in others:
                    make_event(tenant, number=number)
        eventually(lambda: all(row.ended_at for tenant in others for row in deliveries_of(tenant)))
        receiver.over.set()
    waits = sorted(
        (row.ended_at - row.created_at).total_seconds()
        for tenant in others
        for row in deliveries_of(tenant)
        if row.status == DeliveryStatus.SUCCEEDED and row.ended_at
    )
    assert len(waits) == N_OTHERS * 10
    print(f"others' deliveries: p50 {waits[len(waits) // 2]:.2f} s, p99 {waits[-1]:.2f} s")
    assert waits[-1] < 10.0


@pytest.mark.nightly
def test_never_more_than_four_requests_are_open_to_an_endpoint(receiver: Receiver) -> None:
    receiver.answer = lambda received: Answer(hold_s=0.3)
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    for number in range(20):
        make_event(tenant, number=number)
    started = time.monotonic()
    with sending():
        eventually(lambda: len(receiver.got) == 20)
        assert time.monotonic() - started < 6.0, "a place that is free is taken at once"
    assert receiver.most_at_once == claims.PER_ENDPOINT
    with tenant_scope(tenant.id):
        assert WebhookAttempt.objects.count() == 20


def test_tenants_and_endpoints_take_turns() -> None:
    tenants = [new_uuid7() for _ in range(3)]
    for n_endpoints, tenant in zip((5, 1, 1), tenants, strict=True):
        for _ in range(n_endpoints):
            due(tenant, new_uuid7(), 50)
    counts = Counter(claim.tenant_id for claim in claims.take(12, per_tenant=12))
    assert [counts[tenant] for tenant in tenants] == [4, 4, 4]
    counts.update(claim.tenant_id for claim in claims.take(100, per_tenant=12))
    assert [counts[tenant] for tenant in tenants] == [12, 4, 4], "four to an endpoint, twelve to a tenant"
    assert claims.take(100, per_tenant=12) == []


def test_slow_endpoints_are_claimed_apart() -> None:
    tenant, slow, fast = new_uuid7(), new_uuid7(), new_uuid7()
    due(tenant, slow, 5)
    due(tenant, fast, 2)
    assert {claim.endpoint_id for claim in claims.take(50, per_tenant=12, slow=[slow])} == {fast}
    assert {claim.endpoint_id for claim in claims.take(50, per_tenant=12, slow=[slow], only_slow=True)} == {slow}


@pytest.mark.nightly
def test_many_black_holes_of_many_tenants_leave_places_for_the_others(receiver: Receiver) -> None:
    """Six tenants with ten endpoints each that answer after six seconds fill every sender there is; once they are
    known to be slow, half of the senders are for those that are not."""
    receiver.answer = lambda received: Answer(hold_s=6.0 if "hole" in received.path else 0)
    noisy, other = [make_tenant() for _ in range(6)], make_tenant()
    for tenant in noisy:
        for number in range(10):
            make_endpoint(tenant, f"{receiver.url}/hole/{number}")
    make_endpoint(other, receiver.url)
    for tenant in noisy:
        for _ in range(6):
            make_event(tenant)
    with sending():
        time.sleep(8.0)
        made = time.monotonic()
        make_event(other)
        eventually(lambda: any(received.path == "/hook" for received in receiver.got))
        assert next(received.at for received in receiver.got if received.path == "/hook") - made < 10.0
        receiver.over.set()


@pytest.mark.nightly
def test_a_claim_looks_at_a_hundred_thousand_rows_without_reading_them(django_assert_max_num_queries: object) -> None:
    tenant, endpoint = new_uuid7(), new_uuid7()
    for _ in range(10):
        due(tenant, endpoint, 10_000)
    started = time.perf_counter()
    assert len(claims.take(48, per_tenant=12)) == claims.PER_ENDPOINT
    took = time.perf_counter() - started
    print(f"a claim beside 100,000 due rows of one endpoint: {took * 1000:.1f} ms")
    assert took < 1.0
