"""The number of compiles that a tenant may have under way: its plan says, and it is asked where the work starts."""

from uuid import UUID

from django.db import connection

from backend.compiles.models import Compile
from backend.domain.lifecycle import TERMINAL
from backend.domain.money.plans import Entitlement, check_entitlement, plan
from backend.usage.accounts import account_row


def check_room(tenant_id: UUID) -> None:
    """Raise PaymentRequired (`entitlement_reached`) where no further compile may be under way, in the transaction that
    adds one. Submissions of one tenant wait here for each other, so that two cannot both take the last place."""
    allowed = plan(account_row(tenant_id).plan)
    if allowed.concurrent_compiles is None:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('compiles:' || %s, 0))", [str(tenant_id)])
    under_way = Compile.objects.of_tenant(tenant_id).exclude(status__in=TERMINAL).count()
    check_entitlement(allowed, Entitlement.CONCURRENT_COMPILES, under_way)
