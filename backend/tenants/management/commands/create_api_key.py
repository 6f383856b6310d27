"""`create_api_key --tenant ten_... --name NAME --preset ci [--expires-days N] [--test] [--json]`"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser
from django.utils import timezone

from backend.tenants.api_keys import issuing
from backend.tenants.api_keys.permission_presets import PRESETS
from backend.tenants.api_keys.shapes import ApiKeyShape
from backend.tenants.isolation import tenant_scope
from backend.tenants.management_base import TenantCommand, check_tenant, tenant_id
from backend.tenants.permissions import ALL_SCOPES


class Command(TenantCommand):
    help = "Create an API key; its secret is printed now and never again."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--tenant", type=tenant_id, required=True)
        parser.add_argument("--name", required=True)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--preset", choices=PRESETS, help="the scopes of a purpose")
        which.add_argument("--scopes", help="`all`, or a list such as compiles:write,artifacts:read")
        parser.add_argument("--expires-days", type=int)
        parser.add_argument("--test", action="store_true", help="sk_test_ instead of sk_live_")

    def handle(
        self,
        *args: Any,
        tenant: UUID,
        name: str,
        preset: str | None,
        scopes: str | None,
        expires_days: int | None,
        test: bool,
        as_json: bool,
        **options: Any,
    ) -> None:
        check_tenant(tenant)
        with tenant_scope(tenant):
            row, secret = issuing.issue(
                tenant,
                name=name[:100],
                scopes=_scopes(preset, scopes or "all"),
                is_live=not test,
                expires_at=None if expires_days is None else timezone.now() + timedelta(days=expires_days),
            )
        self.answer(ApiKeyShape.of(row) | {"secret": secret}, as_json=as_json)


def _scopes(preset: str | None, scopes: str) -> Sequence[str]:
    if preset is not None:
        return PRESETS[preset].scopes
    return ALL_SCOPES if scopes == "all" else [part.strip() for part in scopes.split(",")]
