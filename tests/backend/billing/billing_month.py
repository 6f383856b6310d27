"""A tenant that buys a plan and uses things, at the time of a test clock."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models.functions import Now

from backend.billing import checkout, cycle, stripe_events
from backend.billing.models import EventStatus, Incident, Invoice, StripeEvent, Subscription
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.ledger import Kind
from backend.rest.new_ids import new_uuid7
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.usage import ledger
from backend.usage.accounts import month_of
from backend.usage.ledger import Fact, StepFact
from backend.usage.models import Account
from tests.doubles.stripe_server import StripeDouble
from tests.factories import make_tenant

SKUS = {
    "teacher": ("teacher.kolm-grammar-1.output_token", "labeling"),
    "gpu_compile": ("runner.second", "distillation"),
    "serving": ("runner.millisecond", "run"),
}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def new_tenant(plan: str = "free", *, now: datetime) -> Tenant:
    """Whose account was opened at `now`."""
    tenant = make_tenant(plan=plan)
    with tenant_scope(tenant.id):
        Account.objects.update(created_at=now)
    begin_month(tenant, now)
    return tenant


def begin_month(tenant: Tenant, now: datetime) -> None:
    """As the account's lock does when the database's clock gets there."""
    start, end = month_of(now)
    with tenant_scope(tenant.id):
        account = Account.objects.get()
        if account.period_start != start:
            Account.objects.update(period_start=start, period_end=end, spent_microusd=0)


def use(tenant: Tenant, moment: datetime, microusd: int, meter: str = "teacher") -> None:
    """Something was used then; booked by the ledger's own code, whose clock is the database's."""
    sku, step = SKUS[meter]
    fact = Fact(
        sku=sku, quantity=1, unit="unit", amount_microusd=microusd, price_version="v", source_key=f"{new_uuid7()}"
    )
    begin_month(tenant, moment)
    with tenant_scope(tenant.id):
        account = Account.objects.select_for_update().get()
        rows = [StepFact(step=step, fact=fact)]
        ledger.book(account, Kind.CHARGE, rows, at=moment, compile_id=None, api_key_id=None, from_hold=0)


def now_of(double: StripeDouble) -> datetime:
    return datetime.fromtimestamp(double.world.now, tz=UTC)


def work(double: StripeDouble, *tenants: Tenant) -> None:
    """What workers do when they come round: events first, then each tenant's turn."""
    # hours have passed on the test clock, of the database's only moments
    StripeEvent.objects.filter(status=EventStatus.RECEIVED).update(due_at=Now())
    stripe_events.process_due(200)
    for tenant in tenants:
        cycle.run_cycle(tenant.id, now=now_of(double))


def buy(double: StripeDouble, tenant: Tenant, plan: str = "pro", **changes: Any) -> str:
    """Through checkout, paid on Stripe's page. Returns the subscription's id at Stripe."""
    url = checkout.start(tenant.id, plan, SYSTEM)
    return str(double.billing.pay_checkout(url.rpartition("/")[2], **changes)["id"])


def advance(double: StripeDouble, to: datetime, *tenants: Tenant, step_h: float = 6) -> None:
    """Both clocks go on together, with workers coming round."""
    while double.world.now < to.timestamp():
        double.advance(min(int(to.timestamp()), double.world.now + int(step_h * 3600)))
        for tenant in tenants:
            begin_month(tenant, now_of(double))
        work(double, *tenants)


def plan_of(tenant: Tenant) -> str:
    with tenant_scope(tenant.id):
        return str(Account.objects.get().plan)


def invoices(tenant: Tenant, **only: Any) -> list[Invoice]:
    with tenant_scope(tenant.id):
        return list(Invoice.objects.filter(**only).order_by("period_end", "created_at"))


def subscription(tenant: Tenant) -> Subscription:
    with tenant_scope(tenant.id):
        return Subscription.objects.get()


def incidents(tenant: Tenant | UUID | None = None) -> list[str]:
    rows = Incident.objects.filter(resolved_at=None).order_by("opened_at")
    if tenant is not None:
        rows = rows.filter(tenant_id=tenant if isinstance(tenant, UUID) else tenant.id)
    return [row.kind for row in rows]


def public(tenant: Tenant) -> str:
    return encode_id(Prefix.TENANT, tenant.id)


def remote_invoices(double: StripeDouble, customer: str, check: Callable[[dict[str, Any]], bool] = bool) -> list[Any]:
    return [row for row in double.world.all("invoice") if row["customer"] == customer and check(row)]
