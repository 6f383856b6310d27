"""`audit_verify --tenant ten_...`"""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from backend.domain.ids import Prefix, encode_id
from backend.tenants.audit import verify_chain
from backend.tenants.isolation import tenant_scope
from backend.tenants.management_base import TenantCommand, check_tenant, tenant_id
from backend.tenants.models import AuditHead


class Command(TenantCommand):
    help = "Compute a tenant's audit log again from its first line; exit status 1 and what is wrong where it differs."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--tenant", type=tenant_id, required=True)

    def handle(self, *args: Any, tenant: UUID, as_json: bool, **options: Any) -> None:
        check_tenant(tenant)
        with tenant_scope(tenant):
            problems = verify_chain(tenant)
            head = AuditHead.objects.of_tenant(tenant).first()
        if problems:
            raise CommandError(" ".join(problems))
        self.answer(
            {
                "object": "audit_verification",
                "tenant": encode_id(Prefix.TENANT, tenant),
                "n_lines": head.seq if head else 0,
                "head_sha256": head.sha256 if head else None,
            },
            as_json=as_json,
        )
