"""The ten invariants of the ledger over random histories: a model in memory, written from the rules alone, beside the
real thing in Postgres. After every step both agree and `invariants` finds nothing.

KOLM_LEDGER_HISTORIES sets how many histories are walked (10,000 in the nightly run; here what fits into a minute).
"""

import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError
from django.db.models import DateTimeField, Value
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from backend.domain.errors import Conflict, PaymentRequired
from backend.domain.money.ledger import GrantKind, Paid
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.usage import accounts, budgets, holds, invariants, ledger, period, postings
from backend.usage.ledger import Fact, StepFact, capture, record, reverse
from backend.usage.models import Billing, Budget, Grant, LedgerTx, UsageFact
from tests.factories import make_tenant
from tests.profiles import IS_FULL

HISTORIES = int(os.environ.get("KOLM_LEDGER_HISTORIES", "40" if IS_FULL else "8"))
CAP = 1_000
PRIORITY = {"promo": 10, "prepaid": 20}
amounts = st.integers(1, 400)
slots = st.integers(0, 3)


@dataclass
class Given:
    """A grant of the model."""

    order: tuple[int, datetime, int]
    id: UUID
    expires: datetime | None
    left: int


@dataclass
class Plain:
    """An account by the rules, without a journal."""

    cap: int | None = CAP
    spent: int = 0
    holds: dict[int, int] = field(default_factory=dict)
    grants: list[Given] = field(default_factory=list)
    used: dict[UUID | None, int] = field(default_factory=dict)  # by key, of this period
    budgets: dict[UUID | None, int] = field(default_factory=dict)
    charged: dict[int, list[tuple[int, list[tuple[Given, int]]]]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    @property
    def held(self) -> int:
        return sum(self.holds.values())

    @property
    def credit(self) -> int:
        return sum(grant.left for grant in self.grants)

    @property
    def room(self) -> int:
        return 1 << 60 if self.cap is None else self.cap + self.credit - self.held - self.spent

    def restore(self, lefts: list[int]) -> None:
        """What was refused was taken back whole."""
        for grant, left in zip(self.grants, lefts, strict=True):
            grant.left = left

    def expire(self, now: datetime) -> list[int]:
        """Gives what the grants had left before."""
        before = [grant.left for grant in self.grants]
        for grant in sorted(self.grants, key=lambda g: g.order):
            if grant.expires is not None and grant.expires <= now and grant.left:
                grant.left -= max(0, min(grant.left, self.room))
        return before

    def pay(self, amount: int) -> list[tuple[Given, int]]:
        parts, left = [], amount
        for grant in sorted(self.grants, key=lambda g: g.order):
            part = min(grant.left, left)
            if part:
                grant.left -= part
                left -= part
                parts.append((grant, part))
        self.spent += left
        return parts


class Ledger(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.tenant = make_tenant(plan="pro").id
        self.key = uuid4()
        self.compiles = [uuid4() for _ in range(4)]
        self.plain = Plain()
        self.n = 0
        with tenant_scope(self.tenant):
            self.now = accounts.account_row(self.tenant).now
            self._set_clock()
            accounts.set_cap(self.tenant, CAP, actor=SYSTEM)

    def _set_clock(self) -> None:
        at = self.now
        accounts.clock = lambda: Value(at, output_field=DateTimeField())

    def _fact(self, amount: int, *, waste: bool = False) -> Fact:
        self.n += 1
        return Fact(
            sku="runner.second",
            quantity=1,
            unit="second",
            amount_microusd=amount,
            price_version="test",
            source_key=f"fact:{self.n}",
            billing=Billing.WASTE if waste else Billing.CHARGE,
        )

    def _count(self, slot: int, amount: int) -> None:
        for key in {None, self._key_of(slot)}:
            self.plain.used[key] = self.plain.used.get(key, 0) + amount

    def _key_of(self, slot: int) -> UUID | None:
        return self.key if slot % 2 else None

    def _budget_room(self, key: UUID | None) -> int:
        rooms = []
        for of, cap in self.plain.budgets.items():
            if of is None or of == key:
                slots = [s for s in self.plain.holds if of is None or self._key_of(s) == of]
                rooms.append(cap - self.plain.used.get(of, 0) - sum(self.plain.holds[s] for s in slots))
        return min(rooms, default=1 << 60)

    @rule(slot=slots, amount=st.integers(0, 700))
    def hold(self, slot: int, amount: int) -> None:
        if slot in self.plain.holds:
            return
        before = self.plain.expire(self.now)
        fits = amount <= self.plain.room and amount <= self._budget_room(self._key_of(slot))
        try:
            with tenant_scope(self.tenant):
                holds.hold(self.tenant, self.compiles[slot], amount, api_key_id=self._key_of(slot))
            assert fits
            self.plain.holds[slot] = amount
        except PaymentRequired:
            assert not fits
            self.plain.restore(before)

    @rule(slot=slots, wanted=st.lists(amounts, min_size=1, max_size=3), waste=st.booleans(), twice=st.booleans())
    def settle(self, slot: int, wanted: list[int], waste: bool, twice: bool) -> None:
        left = self.plain.holds.get(slot, 0)
        facts = [StepFact(step="synthesis", fact=self._fact(30, waste=True))] if waste else []
        total = 0
        for amount in wanted:
            if total + amount <= left:
                total += amount
                facts.append(StepFact(step="synthesis", fact=self._fact(amount)))
        for _ in range(1 + twice):
            with tenant_scope(self.tenant):
                capture(self.tenant, self.compiles[slot], facts)
        self.plain.expire(self.now)
        if slot in self.plain.holds:
            self.plain.holds[slot] -= total
        if total:
            spent = self.plain.spent
            parts = self.plain.pay(total)
            self.plain.charged.setdefault(slot, []).append((self.plain.spent - spent, parts))
            self._count(slot, total)
        self.plain.keys |= {row.fact.source_key for row in facts}

    @rule(slot=slots)
    def release(self, slot: int) -> None:
        with tenant_scope(self.tenant):
            holds.release(self.tenant, self.compiles[slot])
        self.plain.expire(self.now)
        self.plain.holds.pop(slot, None)

    @rule(amount=amounts, with_key=st.booleans(), twice=st.booleans())
    def charge(self, amount: int, with_key: bool, twice: bool) -> None:
        self.plain.expire(self.now)
        key = self.key if with_key else None
        fits = amount <= min(self.plain.room, self._budget_room(key))
        fact = self._fact(amount)
        for turn in range(1 + twice):
            with tenant_scope(self.tenant):
                charged = record(self.tenant, [fact], compile_id=None, step="run", api_key_id=key)
            assert charged == (amount if fits and not turn else 0)
        self.plain.keys.add(fact.source_key)
        if fits:
            self.plain.pay(amount)
            for of in {None, key}:
                self.plain.used[of] = self.plain.used.get(of, 0) + amount

    @rule(slot=slots)
    def credit(self, slot: int) -> None:
        """Everything back, wherever it came from; a second time nothing."""
        charged = self.plain.charged.pop(slot, [])
        self.plain.expire(self.now)
        total = 0
        for accrued, parts in charged:
            self.plain.spent -= accrued
            total += accrued
            for grant, part in parts:
                grant.left += part
                total += part
        for _ in range(2):
            with tenant_scope(self.tenant):
                credited = holds.credit_our_fault(self.tenant, self.compiles[slot], "internal_error")
            assert credited == total
            if total:
                self._count(slot, -total)
            total = 0
        self.plain.expire(self.now)  # what came back to an expired grant goes with the next booking

    @rule(kind=st.sampled_from(["promo", "prepaid"]), amount=amounts, days=st.sampled_from([None, 1, 20, 40]))
    def grant(self, kind: str, amount: int, days: int | None) -> None:
        self.n += 1
        expires = None if days is None else self.now + timedelta(days=days)
        for _ in range(2):  # the same key gives once
            with tenant_scope(self.tenant):
                row = accounts.grant(
                    self.tenant,
                    kind=kind,
                    amount_microusd=amount,
                    expires_at=expires,
                    source_key=f"grant:{self.n}",
                    actor=SYSTEM,
                )
        self.plain.expire(self.now)
        far = datetime.max.replace(tzinfo=self.now.tzinfo)
        order = (PRIORITY[kind], expires or far, row.id.int)
        self.plain.grants.append(Given(order=order, id=row.id, expires=expires, left=amount))
        self.plain.expire(self.now)

    @rule(cap=st.one_of(st.none(), st.integers(0, 2_000)))
    def cap(self, cap: int | None) -> None:
        before = self.plain.expire(self.now)
        least = self.plain.held + self.plain.spent - self.plain.credit
        try:
            with tenant_scope(self.tenant):
                accounts.set_cap(self.tenant, cap, actor=SYSTEM)
            self.plain.cap = cap
            assert cap is None or cap >= least
        except Conflict:
            assert cap is not None
            assert cap < max(0, least)
            self.plain.restore(before)

    @precondition(lambda self: None not in self.plain.budgets)
    @rule(cap=st.integers(50, 1_500))
    def budget(self, cap: int) -> None:
        with tenant_scope(self.tenant):
            budgets.create(self.tenant, scope="tenant", api_key_id=None, cap_microusd=cap, is_hard=True, actor=SYSTEM)
        self.plain.expire(self.now)
        self.plain.budgets[None] = cap

    @rule(days=st.sampled_from([1, 12, 33]))
    def later(self, days: int) -> None:
        month = (self.now.year, self.now.month)
        self.now += timedelta(days=days)
        self._set_clock()
        if (self.now.year, self.now.month) != month:
            self.plain.spent, self.plain.used = 0, {}
        with tenant_scope(self.tenant):
            period.roll_over_period(self.tenant)
        self.plain.expire(self.now)

    @rule(pick=st.integers(0, 50))
    def reverse_a_charge(self, pick: int) -> None:
        """A direct charge of this period, taken back once; a second time it is a Conflict."""
        with tenant_scope(self.tenant):
            start = accounts.account_row(self.tenant).period_start
            txs = list(LedgerTx.objects.filter(kind="charge", period_start=start).order_by("booked_at", "id"))
        if not txs:
            return
        tx = txs[pick % len(txs)]
        try:
            with tenant_scope(self.tenant):
                made = reverse(tx, actor=SYSTEM, reason="test")
                lines = postings.lines_of([made])
        except Conflict:
            return
        self.plain.expire(self.now)
        total = 0
        for line in lines:
            if line.account == "accrued":
                self.plain.spent += line.amount_microusd
                total -= line.amount_microusd
            elif line.grant_id is not None:
                grant = next(g for g in self.plain.grants if g.id == line.grant_id)
                grant.left -= line.amount_microusd
                total -= line.amount_microusd
        for of in {None, tx.api_key_id}:
            self.plain.used[of] = self.plain.used.get(of, 0) - total

    @invariant()
    def the_account_is_the_models(self) -> None:
        if not hasattr(self, "plain"):
            return
        with tenant_scope(self.tenant):
            row = accounts.account_row(self.tenant)
            told = (row.held_microusd, row.spent_microusd, row.credit_microusd, row.cap_microusd)
            assert told == (self.plain.held, self.plain.spent, self.plain.credit, self.plain.cap)
            left = dict(Grant.objects.values_list("id", "remaining_microusd"))
            assert left == {grant.id: grant.left for grant in self.plain.grants}
            assert set(UsageFact.objects.values_list("source_key", flat=True)) == self.plain.keys
            for budget in Budget.objects.all():
                assert budgets.current(budget, row).spent_microusd == self.plain.used.get(None, 0)

    @invariant()
    def the_books_are_in_order(self) -> None:
        if hasattr(self, "plain"):
            with tenant_scope(self.tenant):
                assert list(invariants.violations(self.tenant)) == []

    def teardown(self) -> None:
        """At the end of every compile nothing is held."""
        if not hasattr(self, "plain"):
            return
        for slot in list(self.plain.holds):
            self.release(slot)
        with tenant_scope(self.tenant):
            assert accounts.account_row(self.tenant).held_microusd == 0
            assert list(invariants.violations(self.tenant)) == []


def reversed_grants(account: Any, amount: int) -> Any:
    """The last grant first."""
    rows = list(postings._usable(account.tenant_id))[::-1]
    parts, left = [], min(amount, account.credit_microusd)
    for row in rows:
        part = min(left, row.remaining_microusd)
        if part:
            parts.append(Paid(grant_id=row.id, kind=GrantKind(row.kind), amount_microusd=part))
            left -= part
    return parts


def grant_and_charge(machine: Ledger) -> None:
    machine.grant(kind="prepaid", amount=100, days=None)
    machine.grant(kind="promo", amount=100, days=1)
    machine.charge(amount=50, with_key=False, twice=True)


def let_a_grant_expire(machine: Ledger) -> None:
    machine.grant(kind="promo", amount=100, days=1)
    machine.later(days=12)


def spend_beyond_a_budget(machine: Ledger) -> None:
    machine.budget(cap=60)
    machine.charge(amount=50, with_key=False, twice=False)
    machine.charge(amount=50, with_key=False, twice=False)


def take_back_what_a_budget_counted(machine: Ledger) -> None:
    machine.budget(cap=60)
    machine.charge(amount=50, with_key=False, twice=False)
    machine.reverse_a_charge(pick=0)


MUTATIONS = [
    (take_back_what_a_budget_counted, ledger, "sum_usage", lambda lines: 0),
    (grant_and_charge, postings, "paid_by_grants", reversed_grants),
    (grant_and_charge, postings, "paid_by_grants", lambda account, amount: []),
    (grant_and_charge, ledger, "known_keys", lambda tenant_id, keys: set()),
    (let_a_grant_expire, postings, "expire_grants", lambda account, at: None),
    (spend_beyond_a_budget, budgets, "count", lambda *args, **kwargs: None),
    (spend_beyond_a_budget, budgets, "headroom", lambda account, api_key_id: 1 << 62),
]


@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation[0].__name__}-{mutation[2]}")
def test_the_machine_notices_what_is_broken_on_purpose(
    mutation: Any, is_broken: bool, committed_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that the code as it is passes, and that the same code with one thing broken does not."""
    history, module, name, broken = mutation
    monkeypatch.setattr(accounts, "clock", accounts.clock)
    machine = Ledger()
    machine.begin()

    def live() -> None:
        history(machine)
        machine.the_account_is_the_models()
        machine.the_books_are_in_order()

    if is_broken:
        monkeypatch.setattr(module, name, broken)
        with pytest.raises((AssertionError, DatabaseError)):
            live()
    else:
        live()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_no_history_breaks_an_invariant(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "clock", accounts.clock)  # put back at the end, whatever the machine set
    run_state_machine_as_test(
        Ledger,
        settings=settings(
            max_examples=HISTORIES,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
