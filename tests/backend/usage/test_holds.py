"""Held before spent: whatever comes at once, nothing goes beyond a cap, and what ends gives back what it had."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client

from backend.compiles import leases
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile
from backend.domain.errors import PaymentRequired
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import TERMINAL, CompileStatus, StepName
from backend.rest.new_ids import new_uuid7
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey, Tenant
from backend.usage import accounts, budgets, holds, invariants
from backend.usage.ledger import Fact, StepFact, capture, record
from backend.usage.models import Account, Billing, Budget, Hold, LedgerTx, UsageFact
from backend.usage.reports import LineKind, compile_bill, period_bill
from tests.compile_factories import fresh, hold, make_compile, public_id, small_spec
from tests.factories import bearer, make_api_key, make_tenant
from workers.step import spending

pytestmark = pytest.mark.usefixtures("committed_db")

DOLLAR = 1_000_000


def fact(key: str, amount: int, **changes: Any) -> Fact:
    fields = {"sku": "runner.second", "quantity": 1, "unit": "second", "price_version": "test"} | changes
    return Fact(amount_microusd=amount, source_key=key, **fields)


def cap(tenant: Tenant, microusd: int | None) -> None:
    with tenant_scope(tenant.id):
        accounts.set_cap(tenant.id, microusd, actor=SYSTEM)


def account(tenant: Tenant) -> Account:
    with tenant_scope(tenant.id):
        return accounts.account_of(tenant.id)


def violations(tenant: Tenant) -> list[str]:
    with tenant_scope(tenant.id):
        return list(invariants.violations(tenant.id))


def in_threads(n: int, work: Any, jobs: list[Any]) -> list[Any]:
    """`work(job)` for every job, `n` at once, begun together."""
    gate = Barrier(n)

    def one(part: list[Any]) -> list[Any]:
        gate.wait()
        try:
            return [work(job) for job in part]
        finally:
            connection.close()

    with ThreadPoolExecutor(n) as threads:
        parts = threads.map(one, [jobs[i::n] for i in range(n)])
        return [result for part in parts for result in part]


@pytest.fixture
def many_connections() -> Iterator[None]:
    """One for each of 32 requests at once; the pool of a process has eight."""
    connection.ensure_connection()
    pool = connection.pool
    size = pool.max_size
    pool.resize(pool.min_size, 40)
    yield
    pool.resize(pool.min_size, size)


@pytest.mark.nightly
@pytest.mark.usefixtures("many_connections")
def test_of_200_compiles_at_once_against_a_cap_for_ten_ten_are_accepted(settings):
    """T10: overshoot 0 micro-USD, the rest are told 402, and when all have ended nothing is held."""
    settings.KOLM_RATE_PER_KEY = settings.KOLM_RATE_PER_TENANT = 1_000_000
    tenant = make_tenant()
    secret = make_api_key(tenant)
    cap(tenant, 10 * DOLLAR)
    body = json.dumps(small_spec(budget={"usd": 1}))

    def post(_: int) -> Any:
        try:
            return Client().post("/v1/compiles", body, content_type="application/json", headers=bearer(secret))
        finally:
            connection.close()  # as at the end of a real request: the pool has eight

    answers = in_threads(32, post, list(range(200)))
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses == {202: 10, 402: 190}
    assert {answer.json()["code"] for answer in answers if answer.status_code == 402} == {"spend_cap_reached"}
    assert (account(tenant).held_microusd, account(tenant).spent_microusd) == (10 * DOLLAR, 0)
    with tenant_scope(tenant.id):
        ids = list(Compile.objects.values_list("id", flat=True))
    assert len(ids) == 10
    for compile_id in ids:
        with tenant_scope(tenant.id):
            transitions.cancel(tenant.id, compile_id)
    assert account(tenant).held_microusd == 0
    assert violations(tenant) == []


def test_a_budget_of_an_api_key_stops_that_key_and_no_other(settings):
    settings.KOLM_RATE_PER_KEY = settings.KOLM_RATE_PER_TENANT = 1_000_000
    tenant = make_tenant()
    secrets = [make_api_key(tenant, name=name) for name in ("capped", "free")]
    with tenant_scope(tenant.id):
        key = ApiKey.objects.get(name="capped")
        budgets.create(
            tenant.id, scope="api_key", api_key_id=key.id, cap_microusd=3 * DOLLAR, is_hard=True, actor=SYSTEM
        )
    body = json.dumps(small_spec(budget={"usd": 1}))

    def post(secret: str) -> Any:
        try:
            return Client().post("/v1/compiles", body, content_type="application/json", headers=bearer(secret))
        finally:
            connection.close()

    answers = in_threads(10, post, secrets * 10)
    assert Counter(answer.status_code for answer in answers) == {202: 13, 402: 7}
    assert {answer.json()["code"] for answer in answers if answer.status_code == 402} == {"key_budget_reached"}
    with tenant_scope(tenant.id):
        assert Budget.objects.get().held_microusd == 3 * DOLLAR
    assert violations(tenant) == []


def test_any_number_of_workers_may_settle_at_once_and_the_books_stay_in_order():
    """Twelve threads hold, settle, charge, credit and release, each event twice; the cap binds all of them."""
    tenant = make_tenant()
    cap(tenant, 2_000)

    def work(number: int) -> int:
        dice = random.Random(number)
        compile_id, charged = new_uuid7(), 0
        try:
            with tenant_scope(tenant.id):
                holds.hold(tenant.id, compile_id, 300, api_key_id=None)
        except PaymentRequired:
            with tenant_scope(tenant.id):
                return record(tenant.id, [fact(f"d{number}", 40)], compile_id=None, step="run")
        for part in range(3):
            facts = [StepFact(step="labeling", fact=fact(f"s{number}:{part}", dice.randint(1, 100)))]
            for _ in range(2):
                with tenant_scope(tenant.id):
                    charged += capture(tenant.id, compile_id, facts)
        if number % 5 == 0:
            with tenant_scope(tenant.id):
                charged -= holds.credit_our_fault(tenant.id, compile_id, "test")
        for _ in range(2):
            with tenant_scope(tenant.id):
                holds.release(tenant.id, compile_id)
        return charged

    charged = in_threads(12, work, list(range(72)))
    row = account(tenant)
    assert (row.held_microusd, row.spent_microusd) == (0, sum(charged))
    assert row.spent_microusd <= 2_000
    assert violations(tenant) == []


def test_a_compile_holds_its_budget_spends_from_it_and_gives_back_the_rest():
    tenant = make_tenant()
    row = make_compile(tenant)
    assert account(tenant).held_microusd == row.budget_microusd == DOLLAR
    run = hold(row)
    with run.transaction() as fenced:
        spending.capture(fenced, StepName.SYNTHESIS, [fact(f"{row.id}:a", 600), fact(f"{row.id}:b", 250)])
    assert (account(tenant).held_microusd, account(tenant).spent_microusd) == (DOLLAR - 850, 850)
    with run.transaction() as fenced:
        transitions.move(fenced, CompileStatus.RUNNING)
        transitions.move(fenced, CompileStatus.FAILED, failure_code="x")
        leases.release(run.lease, due_in_s=None)
    assert (account(tenant).held_microusd, account(tenant).spent_microusd) == (0, 850)
    with tenant_scope(tenant.id):
        transitions.resume(tenant.id, row.id, budget_microusd=None)
    assert account(tenant).held_microusd == DOLLAR - 850
    assert violations(tenant) == []


@pytest.mark.parametrize("end", sorted(TERMINAL))
def test_every_end_of_a_compile_releases_its_hold(end):
    tenant = make_tenant()
    run = hold(make_compile(tenant))
    with run.transaction() as fenced:
        if end == CompileStatus.CANCELED:
            transitions.move(fenced, CompileStatus.CANCELED)
        else:
            transitions.move(fenced, CompileStatus.RUNNING)
            transitions.move(fenced, end)
    assert account(tenant).held_microusd == 0
    assert violations(tenant) == []


def test_a_resume_that_does_not_fit_is_refused_and_changes_nothing():
    tenant = make_tenant()
    row = make_compile(tenant)
    with tenant_scope(tenant.id):
        transitions.cancel(tenant.id, row.id)
    cap(tenant, DOLLAR // 2)
    with pytest.raises(PaymentRequired), tenant_scope(tenant.id):
        transitions.resume(tenant.id, row.id, budget_microusd=None)
    assert fresh(row).status == CompileStatus.CANCELED
    assert account(tenant).held_microusd == 0


def test_what_a_failure_of_ours_cost_is_credited_by_itself_and_the_bill_says_so():
    tenant = make_tenant()
    row = make_compile(tenant)
    with tenant_scope(tenant.id):
        accounts.grant(
            tenant.id, kind="promo", amount_microusd=500, expires_at=None, source_key="welcome", actor=SYSTEM
        )
    run = hold(row)
    with run.transaction() as fenced:
        spending.capture(fenced, StepName.SYNTHESIS, [fact(f"{row.id}:a", 600)])
    assert (account(tenant).spent_microusd, account(tenant).credit_microusd) == (100, 0)
    with tenant_scope(tenant.id):
        assert holds.credit_our_fault(tenant.id, row.id, "worker_crashed") == 600
        assert holds.credit_our_fault(tenant.id, row.id, "worker_crashed") == 0
        (credit,) = [line for line in compile_bill(tenant.id, row.id).lines if line.kind is LineKind.CREDIT_OUR_FAULT]
        now = accounts.account_of(tenant.id)
        bill = period_bill(tenant.id, now.period_start, now.period_end)
    assert (credit.amount_microusd, credit.reason, credit.compile_id) == (-600, "worker_crashed", row.id)
    assert encode_id(Prefix.COMPILE, row.id) in credit.label
    assert (now.spent_microusd, now.credit_microusd) == (0, 500)
    assert (bill.usage_microusd, bill.credited_microusd, bill.total_microusd) == (600, 600, 0)
    assert violations(tenant) == []


def test_use_that_no_longer_fits_under_the_cap_is_carried_by_kolm():
    tenant = make_tenant()
    cap(tenant, 100)
    with tenant_scope(tenant.id):
        facts = [fact("a", 70), fact("b", 70), fact("c", 30)]
        assert record(tenant.id, facts, compile_id=None, step="run") == 100
        booked = dict(UsageFact.objects.values_list("source_key", "billing"))
        with pytest.raises(PaymentRequired) as refused:
            accounts.check_open(tenant.id, None)
    assert booked == {"a": Billing.CHARGE, "b": Billing.WASTE, "c": Billing.CHARGE}
    assert refused.value.code == "spend_cap_reached"
    assert violations(tenant) == []


def test_the_order_of_independent_events_does_not_matter_and_repeating_them_neither():
    """The same events, shuffled and sent twice, leave the same account."""
    found = set()
    for seed in range(6):
        tenant = make_tenant()
        compiles = [new_uuid7() for _ in range(3)]
        with tenant_scope(tenant.id):
            for compile_id in compiles:
                holds.hold(tenant.id, compile_id, 500, api_key_id=None)
        events = [(c, f"{c}:{i}", 10 * c + i + 1) for c in range(3) for i in range(5)] * 2
        random.Random(seed).shuffle(events)
        for c, key, amount in events:
            with tenant_scope(tenant.id):
                capture(tenant.id, compiles[c], [StepFact(step="labeling", fact=fact(key, amount))])
        row = account(tenant)
        with tenant_scope(tenant.id):
            left = tuple(holds.left_of(tenant.id, compile_id) for compile_id in compiles)
        found.add((row.held_microusd, row.spent_microusd, left))
        assert violations(tenant) == []
    assert len(found) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE {table} SET tenant_id = tenant_id",
        "DELETE FROM {table}",
        "TRUNCATE {table} CASCADE",
    ],
)
@pytest.mark.parametrize("table", ["usage_ledgertx", "usage_ledgerline", "usage_usagefact", "usage_draftsaving"])
def test_the_database_itself_refuses_to_change_the_journal(table, sql):
    tenant = make_tenant()
    with tenant_scope(tenant.id):
        record(tenant.id, [fact("a", 70)], compile_id=None, step="run")
        n = LedgerTx.objects.count()
    if table == "usage_draftsaving" and not sql.startswith("TRUNCATE"):
        from backend.domain.drafts.vocabulary import Saving
        from backend.usage.savings import note_saving

        with tenant_scope(tenant.id):
            note_saving(tenant.id, new_uuid7(), step="s", source_key="k", saving=Saving(avoided=1), price_version="v")
    with tenant_scope(tenant.id), pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql.format(table=table))
    with tenant_scope(tenant.id):
        assert LedgerTx.objects.count() == n


def test_the_database_refuses_a_transaction_that_does_not_balance_and_a_line_of_nothing():
    tenant = make_tenant()
    with tenant_scope(tenant.id):
        record(tenant.id, [fact("a", 70)], compile_id=None, step="run")
        tx = LedgerTx.objects.get()
        for amounts in ((5,), (5, -4), (0,)):
            rows = ", ".join("(%s, gen_random_uuid(), %s, 'accrued', %s)" for _ in amounts)
            sql = f"INSERT INTO usage_ledgerline (tenant_id, id, tx_id, account, amount_microusd) VALUES {rows}"
            values = [value for amount in amounts for value in (tenant.id, tx.id, amount)]
            with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(sql, values)


def test_the_database_refuses_what_goes_beyond_a_cap():
    tenant = make_tenant()
    cap(tenant, 100)
    with tenant_scope(tenant.id), pytest.raises(DatabaseError), transaction.atomic():
        Account.objects.filter(tenant_id=tenant.id).update(held_microusd=101)


def test_a_hold_is_seen_on_the_api_and_a_cap_below_it_is_refused(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    make_compile(tenant)
    headers = bearer(secret)
    shown = client.get("/v1/account", headers=headers).json()
    assert (shown["held_microusd"], shown["plan"], shown["cap_microusd"]) == (DOLLAR, "enterprise", None)
    refused = client.patch("/v1/account", {"cap_microusd": 5}, content_type="application/json", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "cap_below_use")
    taken = client.patch(
        "/v1/account", {"cap_microusd": 2 * DOLLAR}, content_type="application/json", headers=headers
    ).json()
    assert (taken["cap_microusd"], taken["available_microusd"]) == (2 * DOLLAR, DOLLAR)


def test_with_a_key_of_the_customers_own_only_our_part_is_held_and_charged():
    """The provider's bill counts against the compile's budget and is shown; it is on no bill of ours."""
    from tests.compile_factories import make_teacher_key

    tenant = make_tenant()
    key = make_teacher_key(tenant)
    teacher = {
        "provider": "openai_compatible",
        "model": "m",
        "base_url": "https://llm.example.com/v1",
        "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1},
        "api_key": public_id(key),
    }
    row = make_compile(tenant, teacher=teacher)
    held = account(tenant).held_microusd
    assert 0 < held < row.budget_microusd
    run = hold(row)
    provider = fact(f"{row.id}:t", 0, provider_microusd=999_000, sku="teacher.m.input_token", unit="token")
    with run.transaction() as fenced:
        spending.capture(fenced, StepName.LABELING, [provider, fact(f"{row.id}:r", 100)])
        with pytest.raises(PaymentRequired):
            spending.reserve(fenced.compile, 2_000)
    assert (account(tenant).held_microusd, account(tenant).spent_microusd) == (held - 100, 100)
    with tenant_scope(tenant.id):
        bill = compile_bill(tenant.id, row.id)
    assert (bill.total_microusd, bill.provider_microusd) == (100, 999_000)
    assert fresh(row).provider_microusd == 999_000
    assert violations(tenant) == []


def test_every_tenant_has_an_account_and_a_hold_belongs_to_one_compile():
    tenant = Tenant(id=new_uuid7(), name="new")
    with tenant_scope(tenant.id):
        tenant.save(force_insert=True)
        row = Account.objects.get()
        assert (row.plan, row.cap_microusd) == ("free", 25 * DOLLAR)
        assert Hold.objects.count() == 0
    assert tenant.id in accounts.all_tenants()
