"""The seats of a tenant: how many people its plan has room for.

Accounts and plans belong to `backend.usage`, which stands on this package: `settings.KOLM_ACCOUNT_OF` names the
function that knows a tenant's plan, as Django's settings name classes.
"""

from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.module_loading import import_string

from backend.domain.money import plans
from backend.tenants.models import Invitation, Member, Tenant


def take_seat(tenant_id: UUID, *, is_for_invitation: bool) -> None:
    """Take a seat for one more person; the tenant's row stays locked until the transaction ends, so that two cannot
    take the last seat. Open invitations hold seats. Raises PaymentRequired (`entitlement_reached`)."""
    Tenant.objects.select_for_update().get(id=tenant_id)
    used = Member.objects.of_tenant(tenant_id).count()
    if is_for_invitation:
        used += open_invitations(tenant_id).count()
    plans.check_entitlement(plan_of(tenant_id), plans.Entitlement.SEATS, used)


def open_invitations(tenant_id: UUID) -> QuerySet[Invitation]:
    """The invitations that can still be accepted."""
    rows = Invitation.objects.of_tenant(tenant_id)
    return rows.filter(accepted_at=None, revoked_at=None, expires_at__gt=timezone.now())


def plan_of(tenant_id: UUID) -> plans.Plan:
    return plans.plan(import_string(settings.KOLM_ACCOUNT_OF)(tenant_id).plan)
