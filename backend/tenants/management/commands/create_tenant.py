"""`create_tenant NAME [--json]`"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from backend.rest.new_ids import new_uuid7
from backend.tenants.api_keys.shapes import TenantShape
from backend.tenants.isolation import tenant_scope
from backend.tenants.management_base import TenantCommand
from backend.tenants.models import Tenant


class Command(TenantCommand):
    help = "Create a tenant."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name")

    def handle(self, *args: Any, name: str, as_json: bool, **options: Any) -> None:
        if not 0 < len(name.strip()) <= 100:
            raise CommandError("A tenant's name has 1 to 100 characters.")
        tenant = Tenant(id=new_uuid7(), name=name.strip())
        with tenant_scope(tenant.id):
            tenant.save(force_insert=True)
        self.answer(TenantShape.of(tenant), as_json=as_json)
