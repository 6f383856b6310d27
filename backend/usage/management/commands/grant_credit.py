"""`grant_credit TENANT USD [--kind promo|prepaid] [--expires-in-days N] [--key KEY]`"""

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser
from django.utils import timezone

from backend.domain.money.ledger import GrantKind
from backend.rest.new_ids import new_uuid7
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope
from backend.tenants.management_base import TenantCommand, check_tenant, tenant_id
from backend.usage import accounts
from backend.usage.shapes import AccountShape

OPERATOR = Actor(kind="system", label="operator")


class Command(TenantCommand):
    help = "Give a tenant credit. With --key it may be repeated: the same key gives once."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant", type=tenant_id)
        parser.add_argument("usd", type=Decimal)
        parser.add_argument("--kind", choices=[kind.value for kind in GrantKind], default=GrantKind.PROMO.value)
        parser.add_argument("--expires-in-days", type=int, default=None)
        parser.add_argument("--key", default=None, help="names the grant, so that giving it again changes nothing")

    def handle(
        self,
        *args: Any,
        tenant: UUID,
        usd: Decimal,
        kind: str,
        expires_in_days: int | None,
        key: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        check_tenant(tenant)
        expires_at = None if expires_in_days is None else timezone.now() + timedelta(days=expires_in_days)
        with tenant_scope(tenant):
            accounts.grant(
                tenant,
                kind=kind,
                amount_microusd=int(usd * 1_000_000),
                expires_at=expires_at,
                source_key=key or f"by_hand:{new_uuid7()}",
                actor=OPERATOR,
            )
            self.answer(AccountShape.of(accounts.account_of(tenant)), as_json=as_json)
