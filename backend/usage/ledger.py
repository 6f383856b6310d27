"""Recording usage and booking it. A fact is priced when it is recorded, by the price book in force then, and booked in
the same transaction: as a charge, from a compile's hold or within the spend cap, or as waste, which kolm carries.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Sum

from backend.domain.canonical import sha256_of
from backend.domain.money.ledger import Kind, Meter, charge_lines, meter_of, sum_usage
from backend.rest.new_ids import new_uuid7
from backend.tenants.actors import Actor
from backend.usage import accounts, budgets, postings
from backend.usage.models import Account, Billing, Hold, LedgerTx, UsageFact
from backend.usage.subjects import MOST_SUBJECT, NOBODY, Subject, subject_of_compile, with_key_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`source_key` names the event in the world that used something; recording it again changes nothing.
    `provider_microusd` is what the provider of the customer's own key will bill, by estimate: the amount is 0 then."""

    sku: str
    quantity: int
    unit: str
    amount_microusd: int
    price_version: str
    source_key: str
    billing: Billing = Billing.CHARGE
    is_estimated: bool = False
    provider_microusd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFact:
    """A fact and the step of the compile that it is of."""

    step: str
    fact: Fact


def record(
    tenant_id: UUID,
    facts: Iterable[Fact],
    *,
    compile_id: UUID | None,
    step: str,
    api_key_id: UUID | None = None,
    subject: Subject | None = None,
) -> int:
    """Book use outside of a hold, in the caller's transaction, whose last lock this takes. What does not fit under the
    spend cap and the hard budgets any more is waste: it was not refused in time, so the customer does not pay. Facts
    already there are left as they are. Without a `subject` it is the compile's, of its hold. Returns the micro-USD
    charged."""
    account, at = accounts.lock_account(tenant_id)
    of = subject or subject_of_compile(tenant_id, compile_id)
    room = min(postings.account_headroom(account), budgets.headroom(account, api_key_id))
    booked: list[StepFact] = []
    for fact in _new(tenant_id, list(facts)):
        if fact.billing == Billing.CHARGE and fact.amount_microusd > room:
            fact = replace(fact, billing=Billing.WASTE)
        if fact.billing == Billing.CHARGE:
            room -= fact.amount_microusd
        booked.append(StepFact(step=step, fact=fact))
    return book(
        account,
        Kind.CHARGE,
        booked,
        at=at,
        compile_id=compile_id,
        api_key_id=api_key_id,
        from_hold=0,
        subject=with_key_tags(tenant_id, of, api_key_id),
    )


def capture(tenant_id: UUID, compile_id: UUID, facts: Sequence[StepFact]) -> int:
    """Book what a compile used, out of its hold, in the transaction of the step; the caller holds the compile's lock
    and has seen that the hold has as much left. Returns the micro-USD charged."""
    account, at = accounts.lock_account(tenant_id)
    known = {fact.source_key for fact in _new(tenant_id, [row.fact for row in facts])}
    fresh = [row for row in facts if row.fact.source_key in known]
    row = Hold.objects.of_tenant(tenant_id).filter(compile_id=compile_id).first()
    charged = sum(part.fact.amount_microusd for part in fresh if part.fact.billing == Billing.CHARGE)
    from_hold = 0
    if row is not None and row.is_open:
        from_hold = min(charged, row.amount_microusd - row.settled_microusd)
        row.settled_microusd += from_hold
        row.save(update_fields=["settled_microusd"])
    return book(
        account,
        Kind.CAPTURE,
        fresh,
        at=at,
        compile_id=compile_id,
        api_key_id=None if row is None else row.api_key_id,
        from_hold=from_hold,
        subject=NOBODY if row is None else Subject(name=row.subject, tags=row.tags),
    )


def known_keys(tenant_id: UUID, keys: Iterable[str]) -> set[str]:
    """Return which of these events are recorded already."""
    rows = UsageFact.objects.of_tenant(tenant_id).filter(source_key__in=list(keys))
    return set(rows.values_list("source_key", flat=True))


def reverse(tx: LedgerTx, *, actor: Actor, reason: str) -> LedgerTx:
    """Correct the ledger: the opposite of a transaction, once. Raises Conflict."""
    account, at = accounts.lock_account(tx.tenant_id)
    made = postings.reverse(account, tx, at=at, actor=actor.id or actor.kind, reason=reason)
    if made.is_use:
        back = sum_usage(postings.lines_of([made]))
        budgets.count(account, tx.api_key_id, used=back, held=0, at=at)
    return made


def _new(tenant_id: UUID, facts: list[Fact]) -> list[Fact]:
    """Return the facts without those that are recorded already and those that come twice in one go."""
    seen = known_keys(tenant_id, [fact.source_key for fact in facts])
    fresh = []
    for fact in facts:
        if fact.source_key not in seen:
            seen.add(fact.source_key)
            fresh.append(fact)
    return fresh


def book(
    account: Account,
    kind: Kind,
    rows: Sequence[StepFact],
    *,
    at: datetime,
    compile_id: UUID | None,
    api_key_id: UUID | None,
    from_hold: int,
    allowance_id: UUID | None = None,
    subject: Subject = NOBODY,
) -> int:
    """Write facts that are not recorded yet and the transaction that books them, on a locked account; `from_hold` of
    the charge comes off what is held. Returns the micro-USD charged."""
    if not rows:
        return 0
    charged: Counter[Meter] = Counter()
    wasted: Counter[Meter] = Counter()
    for row in rows:
        sums = charged if row.fact.billing == Billing.CHARGE else wasted
        sums[meter_of(row.fact.sku, row.step)] += row.fact.amount_microusd
    total = charged.total()
    lines = charge_lines(charged, wasted=wasted, paid=postings.paid_by_grants(account, total), from_hold=from_hold)
    digest = sha256_of(sorted(row.fact.source_key for row in rows))[:32]
    key = f"{kind}:{compile_id or 'direct'}:{digest}"
    tx = postings.post(
        account, kind, key, lines, at=at, compile_id=compile_id, api_key_id=api_key_id, allowance_id=allowance_id
    )
    _write(account.tenant_id, rows, at=at, compile_id=compile_id, api_key_id=api_key_id, tx=tx, subject=subject)
    budgets.count(account, api_key_id, used=total, held=-from_hold, at=at)
    return total


def _write(
    tenant_id: UUID,
    rows: Sequence[StepFact],
    *,
    at: datetime,
    compile_id: UUID | None,
    api_key_id: UUID | None,
    tx: LedgerTx | None,
    subject: Subject,
) -> None:
    UsageFact.objects.bulk_create(
        UsageFact(
            id=new_uuid7(),
            tenant_id=tenant_id,
            compile_id=compile_id,
            step=row.step,
            sku=row.fact.sku,
            quantity=row.fact.quantity,
            unit=row.fact.unit,
            price_version=row.fact.price_version,
            amount_microusd=row.fact.amount_microusd,
            billing=row.fact.billing,
            is_estimated=row.fact.is_estimated,
            source_key=row.fact.source_key,
            occurred_at=at,
            meter=meter_of(row.fact.sku, row.step),
            api_key_id=api_key_id,
            provider_microusd=row.fact.provider_microusd,
            tx_id=tx.id if tx is not None and row.fact.amount_microusd else None,
            deployment_id=subject.deployment_id,
            subject=subject.name[:MOST_SUBJECT],
            tags=subject.tags,
        )
        for row in rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    step: str
    sku: str
    unit: str
    billing: str
    quantity: int
    amount_microusd: int


def totals_of_compile(tenant_id: UUID, compile_id: UUID) -> list[UsageTotal]:
    """Return what a compile used, summed by step, sku and who carries it."""
    rows = (
        UsageFact.objects.filter(tenant_id=tenant_id, compile_id=compile_id)
        .values("step", "sku", "unit", "billing")
        .annotate(n=Sum("quantity"), usd=Sum("amount_microusd"))
        .order_by("step", "sku", "billing")
    )
    return [
        UsageTotal(
            step=r["step"],
            sku=r["sku"],
            unit=r["unit"],
            billing=r["billing"],
            quantity=r["n"],
            amount_microusd=r["usd"],
        )
        for r in rows
    ]
