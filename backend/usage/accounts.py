"""A tenant's account: its plan, its spend cap, its grants, and the lock that all bookings of the tenant go through.

A period is a month of UTC, half open. The row moves on to the next one when it is locked after the end, before anything
else is booked: so everything lies in the period whose number it carries.
"""

from datetime import UTC, datetime
from uuid import UUID

from django.db.models import Expression, Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from backend.domain.errors import Conflict, InvalidInput, PaymentRequired
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.ledger import GRANT_PRIORITY, GrantKind, Kind, grant_lines
from backend.domain.money.plans import check_cap, plan
from backend.domain.number_words import usd_exact
from backend.rest.new_ids import new_uuid7
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.usage import postings
from backend.usage.models import Account, BillingDue, Budget, Grant


def account_of(tenant_id: UUID) -> Account:
    """The tenant's account as it is now, in the period that is now."""
    begin_due_period(tenant_id)
    return account_row(tenant_id)


def clock() -> Expression | Combinable:
    """The database's time: no process's own clock decides which period something lies in."""
    return Now()


def account_row(tenant_id: UUID) -> Account:
    """The row as it is stored, with the database's time as `now`."""
    return Account.objects.annotate(now=clock()).get(tenant_id=tenant_id)


def lock_account(tenant_id: UUID) -> tuple[Account, datetime]:
    """The account, locked until the transaction ends, in the period that is now, without expired grants; and the
    database's time. Take no other lock after it."""
    account = Account.objects.select_for_update().annotate(now=clock()).get(tenant_id=tenant_id)
    at = max(account.now, account.period_start)
    if at >= account.period_end:
        _begin_period(account, at)
    if account.credit_microusd:
        postings.expire_grants(account, at)
    return account, at


def check_open(tenant_id: UUID, api_key_id: UUID | None) -> None:
    """Raise PaymentRequired where nothing more may be spent: asked before work that is charged when it is done."""
    account = account_of(tenant_id)
    if postings.account_headroom(account) <= 0:
        raise cap_reached(account, 0)
    budgets = Budget.objects.of_tenant(tenant_id).filter(is_hard=True, period_start=account.period_start)
    for budget in budgets.filter(Q(api_key_id=None) | Q(api_key_id=api_key_id)):
        if budget.held_microusd + budget.spent_microusd >= budget.cap_microusd:
            raise budget_reached(budget, 0)


def set_plan(tenant_id: UUID, name: str, *, actor: Actor) -> Account:
    """Put the tenant on a plan, with that plan's cap. A cap below what is spent and held already stops all further
    spending until the period ends."""
    wanted = plan(name)
    account, _ = lock_account(tenant_id)
    before = account.plan
    account.plan, account.cap_microusd = wanted.name.value, _at_least(account, wanted.cap_default_microusd)
    account.save(update_fields=["plan", "cap_microusd"])
    data = {"from": before, "to": account.plan}
    audit.note(tenant_id, actor=actor, action="plan.changed", target=encode_id(Prefix.TENANT, tenant_id), data=data)
    return account


def set_cap(tenant_id: UUID, microusd: int | None, *, actor: Actor) -> Account:
    """Set the monthly spend cap; None for none. Raises PaymentRequired for one that the plan does not allow, Conflict
    for one below what is spent and held."""
    account, _ = lock_account(tenant_id)
    check_cap(account.plan, microusd)
    least = account.held_microusd + account.spent_microusd - account.credit_microusd
    if microusd is not None and microusd < max(0, least):
        raise Conflict(
            f"This period has {least} micro-USD spent or held already; set a cap of that much or more.",
            code="cap_below_use",
        )
    before, account.cap_microusd = account.cap_microusd, microusd
    account.save(update_fields=["cap_microusd"])
    data = {"from_microusd": before, "to_microusd": microusd}
    audit.note(tenant_id, actor=actor, action="cap.changed", target=encode_id(Prefix.TENANT, tenant_id), data=data)
    return account


def grant(
    tenant_id: UUID,
    *,
    kind: str,
    amount_microusd: int,
    expires_at: datetime | None,
    source_key: str,
    actor: Actor,
) -> Grant:
    """Give the tenant credit. The same `source_key` again is the grant that was made with it."""
    if amount_microusd <= 0:
        raise InvalidInput("A grant is of one micro-USD or more.")
    account, at = lock_account(tenant_id)
    known = Grant.objects.of_tenant(tenant_id).filter(source_key=source_key).first()
    if known is not None:
        return known
    wanted = GrantKind(kind)
    row = Grant.objects.create(
        id=new_uuid7(),
        tenant_id=tenant_id,
        kind=wanted,
        priority=GRANT_PRIORITY[wanted],
        amount_microusd=amount_microusd,
        remaining_microusd=amount_microusd,
        expires_at=expires_at,
        source_key=source_key,
        actor=actor.id or actor.kind,
    )
    # the row begins full: the lines move the account alone
    lines = grant_lines(wanted, row.id, amount_microusd)
    postings.post(account, Kind.GRANT, f"grant:{source_key}", lines, at=at, actor=row.actor, is_counted=True)
    account.credit_microusd += amount_microusd
    account.save(update_fields=["credit_microusd"])
    if expires_at is not None:
        BillingDue.objects.filter(tenant_id=tenant_id, due_at__gt=expires_at).update(due_at=expires_at)
    return row


def all_tenants() -> list[UUID]:
    """Every tenant that has an account."""
    return list(BillingDue.objects.order_by("tenant_id").values_list("tenant_id", flat=True))


def cap_reached(account: Account, wanted: int) -> PaymentRequired:
    left = max(0, postings.account_headroom(account))
    return PaymentRequired(
        f"This needs {usd_exact(wanted)} and the spend cap of the {account.plan} plan has {usd_exact(left)} left until "
        f"{account.period_end:%Y-%m-%d}. Wait for running compiles to end, raise the cap (PATCH /v1/account) or "
        "move to a larger plan.",
        code="spend_cap_reached",
    )


def budget_reached(budget: Budget, wanted: int) -> PaymentRequired:
    left = max(0, budget.cap_microusd - budget.held_microusd - budget.spent_microusd)
    whose = "this team's" if budget.api_key_id is None else "this API key's"
    message = (
        f"This needs {usd_exact(wanted)} and {whose} monthly budget has {usd_exact(left)} left. "
        f"Raise the budget (PATCH /v1/budgets/{encode_id(Prefix.BUDGET, budget.id)}) or wait for the next month."
    )
    if budget.api_key_id is None:
        return PaymentRequired(message, code="spend_cap_reached")
    return PaymentRequired(message, code="key_budget_reached")


def month_of(at: datetime) -> tuple[datetime, datetime]:
    """The month of UTC that a moment is in: from, and to (excluded).

    >>> [day.isoformat()[:10] for day in month_of(datetime(2026, 12, 31, 23, tzinfo=UTC))]
    ['2026-12-01', '2027-01-01']
    """
    start = at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = start.replace(year=start.year + 1, month=1) if start.month == 12 else start.replace(month=start.month + 1)
    return start, end


def begin_due_period(tenant_id: UUID) -> None:
    """Begin the next period and expire grants where it is time: what a conditional UPDATE cannot do by itself."""
    account = account_row(tenant_id)
    if account.now >= account.period_end or (account.credit_microusd and _has_expired_grants(tenant_id, account.now)):
        lock_account(tenant_id)


def _begin_period(account: Account, at: datetime) -> None:
    account.period_start, account.period_end = month_of(at)
    account.spent_microusd = 0
    most = plan(account.plan).cap_max_microusd
    if most is not None and (account.cap_microusd is None or account.cap_microusd > most):
        account.cap_microusd = _at_least(account, most)
    account.save(update_fields=["period_start", "period_end", "spent_microusd", "cap_microusd"])


def _at_least(account: Account, cap: int | None) -> int | None:
    """No cap is below what is spent and held: the database would refuse it."""
    if cap is None:
        return None
    return max(cap, account.held_microusd + account.spent_microusd - account.credit_microusd)


def _has_expired_grants(tenant_id: UUID, at: datetime) -> bool:
    rows = Grant.objects.of_tenant(tenant_id).filter(remaining_microusd__gt=0, expires_at__lte=at)
    return rows.exists()
