"""`ledger_check [--tenant ten_...]`: every invariant of the ledger, over all tenants; exit 1 and a line a fault."""

import sys
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandParser

from backend.domain.ids import Prefix, encode_id
from backend.tenants.isolation import tenant_scope
from backend.tenants.management_base import tenant_id
from backend.usage import accounts, invariants


class Command(BaseCommand):
    help = "Check the ledger: exit 0 when the books are in order, 1 with one line per violation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", type=tenant_id, default=None, help="only this tenant (ten_...)")

    def handle(self, *args: Any, tenant: UUID | None, **options: Any) -> None:
        tenants = accounts.all_tenants() if tenant is None else [tenant]
        n_violations = 0
        for line in invariants.installation_violations():
            n_violations += 1
            self.stdout.write(line)
        for each in tenants:
            with tenant_scope(each):
                for line in invariants.violations(each):
                    n_violations += 1
                    self.stdout.write(f"{encode_id(Prefix.TENANT, each)} {line}")
        if n_violations:
            self.stdout.write(f"{n_violations} violations in {len(tenants)} accounts")
            sys.exit(1)
        self.stdout.write(f"{len(tenants)} accounts: the books are in order")
