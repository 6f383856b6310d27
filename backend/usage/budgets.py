"""Budgets of the customer's own, per tenant and per API key, by calendar month (UTC): counted with every booking under
the account's lock, with one notice each at 50, 80 and 100 %."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet, Sum
from rest_framework import serializers as s

from backend.domain.errors import Conflict, NotFound
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.ledger import ACCRUED, CREDIT
from backend.domain.number_words import usd
from backend.domain.roles import Role
from backend.rest.shapes import Constant, PublicId, Shape, Time
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.models import ApiKey, Member, Tenant
from backend.usage import accounts
from backend.usage.models import Account, Allowance, Budget, BudgetNotice, BudgetScope, Hold, LedgerLine
from backend.webhooks.emit import emit

THRESHOLDS = (50, 80, 100)
_NOTIFIED = (Role.OWNER, Role.BILLING)


class BudgetShape(Shape[Budget]):
    id = PublicId(Prefix.BUDGET)
    object = Constant("budget")
    scope = s.CharField()
    api_key = PublicId(Prefix.API_KEY, source="api_key_id", allow_null=True)
    cap_microusd = s.IntegerField()
    hard_stop = s.BooleanField(
        source="is_hard", help_text="Whether what would not fit is refused; else it only notifies."
    )
    spent_microusd = s.IntegerField(help_text="This month's use, whoever paid.")
    held_microusd = s.IntegerField()
    period_start = Time()
    period_end = Time()
    created_at = Time()

    def get_period_start(self, row: Budget) -> datetime:
        return accounts.month_of(row.period_start)[0]

    def get_period_end(self, row: Budget) -> datetime:
        return accounts.month_of(row.period_start)[1]


class BudgetDeletion(Shape[Any]):
    id = s.CharField()
    object = Constant("budget_deletion")


def create(
    tenant_id: UUID, *, scope: str, api_key_id: UUID | None, cap_microusd: int, is_hard: bool, actor: Actor
) -> Budget:
    """A budget that counts from the start of this period. Raises Conflict where there is one already, NotFound for a
    key that is not the tenant's."""
    if api_key_id is not None and not ApiKey.objects.of_tenant(tenant_id).filter(id=api_key_id).exists():
        raise NotFound("There is no such API key.")
    account, at = accounts.lock_account(tenant_id)
    if Budget.objects.of_tenant(tenant_id).filter(scope=scope, api_key_id=api_key_id).exists():
        raise Conflict("There is already a budget for this; change that one.", code="budget_exists")
    row = Budget.objects.create(
        tenant_id=tenant_id,
        scope=scope,
        api_key_id=api_key_id,
        cap_microusd=cap_microusd,
        is_hard=is_hard,
        held_microusd=held_of(tenant_id, api_key_id),
        spent_microusd=spent_of(account, api_key_id),
        period_start=account.period_start,
    )
    _notify_of_thresholds(account, row, at)
    _note(row, actor, "budget.created")
    return row


def change(row: Budget, *, actor: Actor, cap_microusd: int | None = None, is_hard: bool | None = None) -> Budget:
    """A new cap, or another kind of stop. A cap below what is spent refuses everything until the month ends."""
    account, at = accounts.lock_account(row.tenant_id)
    row.refresh_from_db()
    row.cap_microusd = row.cap_microusd if cap_microusd is None else cap_microusd
    row.is_hard = row.is_hard if is_hard is None else is_hard
    row.save(update_fields=["cap_microusd", "is_hard"])
    _notify_of_thresholds(account, row, at)
    _note(row, actor, "budget.changed")
    return row


def delete(row: Budget, *, actor: Actor) -> None:
    accounts.lock_account(row.tenant_id)
    _note(row, actor, "budget.deleted")
    row.delete()


def claim(account: Account, api_key_id: UUID | None, amount_microusd: int) -> None:
    """Set money aside on the budgets that this spending counts against: one conditional UPDATE each. Raises
    PaymentRequired."""
    for budget in _of(account.tenant_id, api_key_id):
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE usage_budget SET held_microusd = held_microusd + %(amount)s, spent_microusd = CASE WHEN"
                " period_start = %(period)s THEN spent_microusd ELSE 0 END, period_start = %(period)s"
                " WHERE tenant_id = %(tenant)s AND id = %(id)s AND (NOT is_hard OR held_microusd + %(amount)s"
                " + CASE WHEN period_start = %(period)s THEN spent_microusd ELSE 0 END <= cap_microusd)",
                {
                    "amount": amount_microusd,
                    "period": account.period_start,
                    "tenant": account.tenant_id,
                    "id": budget.id,
                },
            )
            if cursor.rowcount == 0:
                raise accounts.budget_reached(current(budget, account), amount_microusd)


def headroom(account: Account, api_key_id: UUID | None) -> int:
    """Return what the hard budgets leave, micro-USD."""
    lefts = [
        budget.cap_microusd - budget.held_microusd - budget.spent_microusd
        for budget in (current(row, account) for row in _of(account.tenant_id, api_key_id))
        if budget.is_hard
    ]
    return min(lefts, default=1 << 62)


def count(account: Account, api_key_id: UUID | None, *, used: int, held: int, at: datetime) -> None:
    """Add what a booking used and held to the budgets it counts against, and notify of thresholds it passed."""
    if not used and not held:
        return
    for row in _of(account.tenant_id, api_key_id):
        budget = current(row, account)
        budget.held_microusd += held
        budget.spent_microusd += used
        budget.save(update_fields=["held_microusd", "spent_microusd", "period_start"])
        if used > 0:
            _notify_of_thresholds(account, budget, at)


def held_of(tenant_id: UUID, api_key_id: UUID | None) -> int:
    """Return what open holds and allowances have left, for all keys or for one."""
    held = 0
    for rows in (Hold.objects.of_tenant(tenant_id), Allowance.objects.of_tenant(tenant_id)):
        of_key = rows.filter(is_open=True) if api_key_id is None else rows.filter(is_open=True, api_key_id=api_key_id)
        sums = of_key.aggregate(held=Sum("amount_microusd"), settled=Sum("settled_microusd"))
        held += int(sums["held"] or 0) - int(sums["settled"] or 0)
    return held


def spent_of(account: Account, api_key_id: UUID | None) -> int:
    """Return what was used in the account's period, whoever paid: the fold that a budget's `spent` is."""
    rows = LedgerLine.objects.of_tenant(account.tenant_id).filter(
        Q(account=ACCRUED) | Q(account__startswith=CREDIT),
        tx__is_use=True,
        tx__period_start=account.period_start,
    )
    if api_key_id is not None:
        rows = rows.filter(tx__api_key_id=api_key_id)
    return int(rows.aggregate(n=Sum("amount_microusd"))["n"] or 0)


def current(row: Budget, account: Account) -> Budget:
    """The budget in the account's period: nothing is spent of a new one."""
    if row.period_start != account.period_start:
        row.period_start, row.spent_microusd = account.period_start, 0
    return row


def in_period(row: Budget) -> Budget:
    """The budget as it is in the tenant's present period, for showing."""
    return current(row, accounts.account_of(row.tenant_id))


def _of(tenant_id: UUID, api_key_id: UUID | None) -> QuerySet[Budget]:
    rows = Budget.objects.of_tenant(tenant_id).order_by("id")
    if api_key_id is None:
        return rows.filter(scope=BudgetScope.TENANT)
    return rows.filter(Q(scope=BudgetScope.TENANT) | Q(api_key_id=api_key_id))


def _notify_of_thresholds(account: Account, budget: Budget, at: datetime) -> None:
    """Notify of the highest threshold that is newly passed; those below it count as notified."""
    passed = [percent for percent in THRESHOLDS if budget.spent_microusd * 100 >= budget.cap_microusd * percent]
    notified = BudgetNotice.objects.of_tenant(budget.tenant_id).filter(
        budget_id=budget.id, period_start=budget.period_start
    )
    new = set(passed) - set(notified.values_list("percent", flat=True))
    if not new:
        return
    BudgetNotice.objects.bulk_create(
        BudgetNotice(
            tenant_id=budget.tenant_id,
            budget_id=budget.id,
            period_start=budget.period_start,
            percent=percent,
            spent_microusd=budget.spent_microusd,
            cap_microusd=budget.cap_microusd,
        )
        for percent in sorted(new)
    )
    highest = max(new)
    shape = BudgetShape.of(budget) | {"threshold_percent": highest}
    emit(budget.tenant_id, "budget.reached" if highest == 100 else "budget.threshold", {"object": shape})
    _mail(budget, highest)


def _mail(budget: Budget, percent: int) -> None:
    """Send an e-mail to owners and billing members, after the commit; one that cannot be sent stops nothing."""
    to = recipients(budget.tenant_id)
    if not to:
        return
    name = Tenant.objects.values_list("name", flat=True).get(id=budget.tenant_id)
    whose = "the team's budget" if budget.api_key_id is None else "the budget of an API key"
    subject = f"[{settings.KOLM_SITE_NAME}] {percent} % of {whose} is used"
    stop = "Nothing new starts until the month ends or the budget is raised.\n" if budget.is_hard else ""
    text = (
        f"{name}: {percent} % of {whose} for this month is used "
        f"({usd(budget.spent_microusd)} of {usd(budget.cap_microusd)}).\n"
        f"{stop if percent >= 100 else ''}\nUsage and budgets: {settings.KOLM_PUBLIC_URL}/app/bills\n"
    )

    def send() -> None:
        from django.core.mail import send_mail

        send_mail(subject, text, None, to)

    transaction.on_commit(send, robust=True)


def recipients(tenant_id: UUID) -> list[str]:
    """The addresses that notices go to: of owners and billing members."""
    members = Member.objects.of_tenant(tenant_id).filter(role__in=_NOTIFIED).select_related("user")
    return sorted({member.user.email for member in members if member.user.email})


def _note(row: Budget, actor: Actor, action: str) -> None:
    data = {"scope": row.scope, "cap_microusd": row.cap_microusd, "hard_stop": row.is_hard}
    audit.note(row.tenant_id, actor=actor, action=action, target=encode_id(Prefix.BUDGET, row.id), data=data)
