"""What serving costs: promised before it runs, booked once, never above a cap."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from backend.domain.ids import Prefix, encode_id
from backend.domain.money.pricing import price_book
from backend.domain.serving.deployments import token_costs
from backend.domain.serving.wire import grant_key, sign_grant
from backend.serving.models import DeploymentHour
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from backend.usage import budgets, period
from backend.usage.invariants import violations
from backend.usage.models import Account, Allowance, Budget, LedgerTx, UsageFact
from tests.backend.serving.worlds import FarSide, World, chat, make_world, runner, tell_usage

ROW = {"prompt": 120, "cached": 20, "completion": 30}


def account(world: World) -> Account:
    with tenant_scope(world.tenant.id):
        return Account.objects.get(tenant_id=world.tenant.id)


def cap(world: World, microusd: int) -> None:
    with tenant_scope(world.tenant.id):
        Account.objects.filter(tenant_id=world.tenant.id).update(plan="pro", cap_microusd=microusd)


def sound(world: World) -> bool:
    with tenant_scope(world.tenant.id):
        assert list(violations(world.tenant.id)) == []
    return True


def allowances_of(world: World) -> list[Allowance]:
    with tenant_scope(world.tenant.id):
        return list(Allowance.objects.order_by("created_at"))


def worst_of(world: World, far: FarSide, **more: Any) -> int:
    """What one request is promised, by one that is made and told of."""
    assert chat(world, "router", **more).status_code == 200
    (row,) = allowances_of(world)
    worst = row.promised_microusd
    tell_usage(far.usage())
    return worst


def test_a_request_is_on_the_bill_once_however_often_it_is_told(world, far):
    made = world.deploy()
    assert chat(world, "router").status_code == 200
    assert account(world).held_microusd > 0
    assert tell_usage(far.usage()) == {"booked": 1, "known": 0, "refused": []}
    assert tell_usage(far.usage(), far.usage()) == {"booked": 0, "known": 2, "refused": []}
    expected = sum(cost.amount_microusd for cost in token_costs(price_book(), **ROW))
    with tenant_scope(world.tenant.id):
        facts = {fact.sku: fact for fact in UsageFact.objects.all()}
        counter = DeploymentHour.objects.get()
        key = ApiKey.objects.get()
    assert {sku: fact.quantity for sku, fact in facts.items()} == {
        "serving.prompt_token": 100,
        "serving.cached_token": 20,
        "serving.completion_token": 30,
    }
    assert {fact.api_key_id for fact in facts.values()} == {key.id}
    assert {fact.meter for fact in facts.values()} == {"serving"}
    assert account(world).spent_microusd == expected == counter.amount_microusd
    assert (counter.n_requests, counter.prompt_tokens, counter.accepted_tokens) == (1, 120, 8)
    detail = world.call("GET", f"/v1/deployments/{made['id']}").json()
    (figures,) = detail["last_24h"]
    assert (figures["n_requests"], figures["acceptance_ppm"]) == (1, 800_000)
    assert 40_000 <= figures["first_token_p50_us"] <= 48_000
    hours = world.call("GET", f"/v1/deployments/{made['id']}/hours").json()["data"]
    assert hours[0]["completion_tokens"] == 30
    assert sound(world)


def test_an_answer_is_booked_under_its_deployments_name_and_the_tags_of_key_and_deployment(world, far):
    made = world.deploy(tags={"team": "support"})
    assert made["tags"] == {"team": "support"}
    with tenant_scope(world.tenant.id):
        ApiKey.objects.update(tags={"team": "ops", "env": "prod"})
    assert chat(world, "router").status_code == 200
    first = far.usage()
    tell_usage(first)
    changed = world.call("PATCH", f"/v1/deployments/{made['id']}", {"tags": {}})
    assert changed.json()["tags"] == {}
    assert world.call("PATCH", f"/v1/deployments/{made['id']}", {"tags": {"Team": "x"}}).status_code == 400
    with tenant_scope(world.tenant.id):
        facts = list(UsageFact.objects.all())
    assert {(encode_id(Prefix.DEPLOYMENT, fact.deployment_id), fact.subject) for fact in facts} == {
        (made["id"], "router")
    }
    assert all(fact.tags == {"team": "support", "env": "prod"} for fact in facts)
    (group,) = world.call("GET", "/v1/bills/groups").json()["groups"]
    assert (group["kind"], group["id"], group["name"]) == ("deployment", made["id"], "router")
    assert sound(world)


def test_a_rules_answer_is_a_request_that_costs_nothing_and_gives_its_promise_back(world, far):
    made = world.deploy()
    assert chat(world, "router").status_code == 200
    assert account(world).held_microusd > 0
    none = dict.fromkeys(
        ("prompt_tokens", "cached_tokens", "completion_tokens", "drafted_tokens", "accepted_tokens"), 0
    )
    ruled = far.usage(finish_reason="rule", total_us=2, first_token_us=2, **none)
    told = tell_usage(far.usage(finish_reason="rule"), ruled, ruled)
    assert (told["booked"], [row["row"] for row in told["refused"]]) == (1, [0])
    assert "no tokens" in told["refused"][0]["detail"]
    assert account(world).spent_microusd == 0
    assert allowances_of(world)[0].promised_microusd == 0
    (figures,) = world.call("GET", f"/v1/deployments/{made['id']}").json()["last_24h"]
    assert (figures["n_requests"], figures["n_rule"], figures["completion_tokens"]) == (1, 1, 0)
    assert sound(world)


def test_parts_of_one_request_add_up_and_the_promise_goes_with_the_last(world, far):
    world.deploy()
    assert chat(world, "router").status_code == 200
    worst = allowances_of(world)[0].promised_microusd
    first = far.usage(part=0, prompt_tokens=100, cached_tokens=0, completion_tokens=50, finish_reason="")
    last = far.usage(
        part=1, prompt_tokens=0, cached_tokens=0, completion_tokens=30, drafted_tokens=0, accepted_tokens=0
    )
    tell_usage(first)
    half = allowances_of(world)[0]
    assert half.promised_microusd == worst - half.settled_microusd > 0
    tell_usage(last)
    assert allowances_of(world)[0].promised_microusd == 0
    with tenant_scope(world.tenant.id):
        assert DeploymentHour.objects.get().completion_tokens == 80
        assert DeploymentHour.objects.get().n_requests == 1
    assert sound(world)


def test_answers_of_one_request_give_back_their_share_each(world, far):
    world.deploy()
    assert chat(world, "router", n=3).status_code == 200
    worst = allowances_of(world)[0].promised_microusd
    tell_usage(far.usage(part=0))
    assert allowances_of(world)[0].promised_microusd == worst - -(-worst // 3)
    tell_usage(far.usage(part=1), far.usage(part=2))
    assert allowances_of(world)[0].promised_microusd == 0
    assert sound(world)


def test_one_allowance_carries_many_requests_and_what_is_left_goes_back(world, far):
    world.deploy()
    for _ in range(5):
        assert chat(world, "router").status_code == 200
    assert len(allowances_of(world)) == 1
    tell_usage(*(far.usage(n) for n in range(5)))
    assert allowances_of(world)[0].promised_microusd == 0
    with tenant_scope(world.tenant.id):
        Allowance.objects.update(takes_until=timezone.now() - timedelta(seconds=1))
        period.roll_over_period(world.tenant.id)
    assert not allowances_of(world)[0].is_open
    assert account(world).held_microusd == 0
    assert sound(world)


def test_an_allowance_that_nobody_told_the_end_of_is_released_at_its_end_and_later_usage_is_booked_all_the_same(
    world, far
):
    """The gateway or the server died."""
    world.deploy()
    assert chat(world, "router").status_code == 200
    past = timezone.now() - timedelta(seconds=1)
    with tenant_scope(world.tenant.id):
        Allowance.objects.update(takes_until=past)
        period.roll_over_period(world.tenant.id)
        assert Allowance.objects.get().is_open  # something is promised still
        Allowance.objects.update(expires_at=past)
        period.roll_over_period(world.tenant.id)
    assert account(world).held_microusd == 0
    tell_usage(far.usage())
    assert account(world).spent_microusd > 0
    assert sound(world)


def test_upkeep_is_told_when_to_look(world, far):
    from backend.usage.models import BillingDue

    world.deploy()
    assert chat(world, "router").status_code == 200
    due = BillingDue.objects.get(tenant_id=world.tenant.id)
    assert due.due_at <= timezone.now() + timedelta(seconds=61)


def test_above_the_cap_nothing_is_asked_of_a_server(world, far):
    world.deploy()
    cap(world, 10)
    answer = chat(world, "router", max_tokens=1000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "spend_cap_reached")
    assert answer.json()["error"]["type"] == "insufficient_quota"
    assert far.bodies == []
    assert allowances_of(world) == []


def test_a_keys_own_budget_stops_that_key(world, far):
    world.deploy()
    with tenant_scope(world.tenant.id):
        key = ApiKey.objects.get()
        budgets.create(world.tenant.id, scope="api_key", api_key_id=key.id, cap_microusd=5, is_hard=True, actor=SYSTEM)
    answer = chat(world, "router", max_tokens=1000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "key_budget_reached")
    assert sound(world)


def test_a_budget_counts_what_was_used_and_what_is_promised(world, far):
    world.deploy()
    with tenant_scope(world.tenant.id):
        budgets.create(
            world.tenant.id, scope="tenant", api_key_id=None, cap_microusd=10_000, is_hard=True, actor=SYSTEM
        )
    assert chat(world, "router").status_code == 200
    with tenant_scope(world.tenant.id):
        assert Budget.objects.get().held_microusd == Allowance.objects.get().amount_microusd
    tell_usage(far.usage())
    with tenant_scope(world.tenant.id):
        assert Budget.objects.get().spent_microusd == account(world).spent_microusd > 0
    assert sound(world)


def test_many_requests_at_once_never_pass_a_small_cap(world, far):
    """Room for about six worst cases, thirty callers, and every server answers with its worst case."""
    world.deploy()
    worst = worst_of(world, far, max_tokens=200)
    with tenant_scope(world.tenant.id):
        Allowance.objects.update(takes_until=timezone.now() - timedelta(seconds=1))
        period.roll_over_period(world.tenant.id)
    spent = account(world).spent_microusd
    cap(world, spent + 6 * worst)
    gate = threading.Barrier(10)

    def ask(_: int) -> int:
        try:
            gate.wait(10)
            return chat(world, "router", max_tokens=200).status_code
        finally:
            connection.close()

    before = len(far.tokens)
    with ThreadPoolExecutor(10) as pool:
        statuses = list(pool.map(ask, range(30)))
    n_served = statuses.count(200)
    assert set(statuses) == {200, 402}
    assert 1 <= n_served <= 6
    assert len(far.tokens) - before == n_served
    n_completion = worst // 1 * 5  # as many tokens as the promise pays for, at 0.20 a million
    rows = [
        far.usage(before + i, prompt_tokens=0, cached_tokens=0, completion_tokens=n_completion) for i in range(n_served)
    ]
    assert tell_usage(*rows)["booked"] == n_served
    after = account(world)
    assert after.spent_microusd == spent + n_served * worst
    assert after.spent_microusd + after.held_microusd <= after.cap_microusd
    with tenant_scope(world.tenant.id):
        assert not UsageFact.objects.filter(billing="waste").exists()
    assert sound(world)


def test_near_the_cap_money_that_waits_does_not_refuse_what_comes(world, far):
    """One key's idle allowance is taken back for another key's request."""
    from tests.factories import make_api_key

    world.deploy()
    worst = worst_of(world, far, max_tokens=200)  # its allowance is idle and open
    held = account(world).held_microusd
    cap(world, account(world).spent_microusd + held + worst // 2)
    other = make_api_key(world.tenant)
    assert chat(world, "router", secret=other, max_tokens=200).status_code == 200
    assert sound(world)


def test_more_than_was_promised_is_kolms_where_the_cap_has_no_room(world, far):
    world.deploy()
    assert chat(world, "router", max_tokens=10).status_code == 200
    held = account(world)
    cap(world, held.held_microusd + held.spent_microusd)
    tell_usage(far.usage(completion_tokens=9_000_000))
    after = account(world)
    assert after.spent_microusd + after.held_microusd <= after.cap_microusd
    with tenant_scope(world.tenant.id):
        assert UsageFact.objects.get(sku="serving.completion_token").billing == "waste"
    assert sound(world)


# --- rows that are not to be believed ------------------------------------------------------------------------


def test_rows_that_nobody_granted_are_refused_by_row_and_the_others_booked(world, far):
    world.deploy()
    assert chat(world, "router").status_code == 200
    good = far.usage()
    body, _, mac = good.grant.partition(".")
    forged = replace(far.grants[-1], tenant=make_world().tenant.id.hex)
    rows = [
        replace(good, grant=f"{body}.{'A' * len(mac)}").to_json(),
        replace(good, grant="nonsense").to_json(),
        replace(good, grant=sign_grant(forged, b"another key")).to_json(),
        replace(good, model="e" * 64).to_json(),
        replace(good, prompt_tokens=-1).to_json(),
        replace(good, completion_tokens=10**9).to_json(),
        replace(good, cached_tokens=121).to_json(),
        replace(good, accepted_tokens=11).to_json(),
        replace(good, finish_reason="paid").to_json(),
        good.to_json() | {"amount": 0},
        "row",
        good.to_json(),
    ]
    answer = runner("usage", {"server": "srv_x", "rows": rows}).json()
    assert answer["booked"] == 1
    assert [refused["row"] for refused in answer["refused"]] == list(range(11))
    assert sound(world)


def test_usage_of_a_tenant_that_is_gone_is_refused(world, far):
    world.deploy()
    assert chat(world, "router").status_code == 200
    gone = replace(far.grants[-1], tenant="0" * 32)
    from django.conf import settings

    row = far.usage(grant=sign_grant(gone, grant_key(settings.KOLM_RUNNER_TOKEN)))
    assert "tenant" in tell_usage(row)["refused"][0]["detail"]


@pytest.mark.parametrize(
    "body", [{}, {"server": "x"}, {"server": "x", "rows": [{}] * 1001}, {"server": "x", "rows": 3}]
)
def test_a_batch_that_is_none_is_refused_whole(body, fresh_gateway):
    assert runner("usage", body).status_code == 400


def test_the_deployments_answer_names_the_engine_that_ran(world, far):
    from backend.serving.models import Server

    made = world.deploy()
    assert chat(world, "router").status_code == 200
    tell_usage(far.usage(), server=encode_id(Prefix.SERVER, Server.objects.get().id))
    ran = world.call("GET", f"/v1/deployments/{made['id']}").json()["ran"]
    assert ran == [{"server": "s1", "name": "torch", "version": "1"}]


def test_most_requests_leave_the_journal_alone(world, far):
    world.deploy()
    for _ in range(4):
        assert chat(world, "router").status_code == 200
    with tenant_scope(world.tenant.id):
        assert LedgerTx.objects.exclude(allowance_id=None).count() == 1
