"""`purge_drafts --tenant ten_... (--family NAME | --all) [--json]`"""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from backend.drafts.purging import purge_family, purge_tenant
from backend.tenants.management_base import TenantCommand, check_tenant, tenant_id


class Command(TenantCommand):
    help = "Delete what the draft cache has of a family, and the key its texts are sealed with."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--tenant", type=tenant_id, required=True)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--family")
        which.add_argument("--all", action="store_true", dest="is_all", help="every family of the tenant")

    def handle(self, *args: Any, tenant: UUID, family: str | None, is_all: bool, as_json: bool, **options: Any) -> None:
        check_tenant(tenant)
        purged = purge_tenant(tenant) if family is None else purge_family(tenant, family)
        self.answer({"object": "purged_drafts"} | asdict(purged), as_json=as_json)
