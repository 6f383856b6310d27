"""The turn of an account's period, and what else falls due at a known time: grants expire, allowances end.

An account that is used rolls over by itself when it is locked; this is for those that nobody uses, and upkeep calls it.
"""

from uuid import UUID

from django.db.models.functions import Now

from backend.usage import allowances
from backend.usage.accounts import lock_account
from backend.usage.models import Account, BillingDue, Grant


def due(limit: int = 50) -> list[UUID]:
    """Return tenants whose period has ended, or who have a grant that has, or an allowance to be looked at."""
    rows = BillingDue.objects.filter(due_at__lte=Now()).order_by("due_at")
    return list(rows.values_list("tenant_id", flat=True)[:limit])


def roll_over_period(tenant_id: UUID) -> None:
    """Begin the next period of a tenant that is due, in its scope; expire its grants and its allowances. A tenant that
    was erased is not due any more."""
    if not Account.objects.of_tenant(tenant_id).exists():
        BillingDue.objects.filter(tenant_id=tenant_id).delete()
        return
    account, at = lock_account(tenant_id)
    look_again = allowances.expire(account, at)
    upcoming = Grant.objects.of_tenant(tenant_id).filter(remaining_microusd__gt=0, expires_at__gt=Now())
    first = upcoming.order_by("expires_at").values_list("expires_at", flat=True).first()
    due_at = min(moment for moment in (account.period_end, first, look_again) if moment is not None)
    BillingDue.objects.filter(tenant_id=tenant_id).update(due_at=due_at)
