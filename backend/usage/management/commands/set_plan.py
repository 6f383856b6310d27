"""`set_plan TENANT PLAN [--cap-usd N | --no-cap]`"""

from decimal import Decimal
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from backend.domain.money.plans import PlanName
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope
from backend.tenants.management_base import TenantCommand, check_tenant, tenant_id
from backend.usage import accounts
from backend.usage.shapes import AccountShape

OPERATOR = Actor(kind="system", label="operator")


class Command(TenantCommand):
    help = "Put a tenant on a plan by hand: contracts, tests, goodwill. Its spend cap becomes the plan's."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant", type=tenant_id)
        parser.add_argument("plan", choices=[name.value for name in PlanName])
        cap = parser.add_mutually_exclusive_group()
        cap.add_argument("--cap-usd", type=Decimal, default=None, help="another monthly spend cap that the plan allows")
        cap.add_argument("--no-cap", action="store_true")

    def handle(
        self, *args: Any, tenant: UUID, plan: str, cap_usd: Decimal | None, no_cap: bool, as_json: bool, **options: Any
    ) -> None:
        check_tenant(tenant)
        with tenant_scope(tenant):
            account = accounts.set_plan(tenant, plan, actor=OPERATOR)
            if no_cap or cap_usd is not None:
                cap = None if cap_usd is None else int(cap_usd * 1_000_000)
                account = accounts.set_cap(tenant, cap, actor=OPERATOR)
            self.answer(AccountShape.of(account), as_json=as_json)
