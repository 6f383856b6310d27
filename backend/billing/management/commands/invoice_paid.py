"""`invoice_paid TENANT INVOICE`: book that an invoice of ours was paid by other means than Stripe."""

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from backend.billing.invoices import book_payment, find_invoice
from backend.billing.models import BilledBy
from backend.billing.shapes import InvoiceShape
from backend.domain.ids import Prefix, decode_id
from backend.tenants.isolation import tenant_scope
from backend.tenants.management_base import TenantCommand


class Command(TenantCommand):
    help = "Book that an invoice was paid by other means than Stripe."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant", help="ten_...")
        parser.add_argument("invoice", help="invc_...")

    def handle(self, *args: Any, tenant: str, invoice: str, as_json: bool, **options: Any) -> None:
        tenant_id = decode_id(Prefix.TENANT, tenant)
        with tenant_scope(tenant_id):
            row = find_invoice(tenant_id, invoice)
            if row.billed_by == BilledBy.STRIPE:
                raise CommandError("Stripe collects this invoice and tells us when it is paid.")
            if not book_payment(row, paid_at=timezone.now(), actor="operator"):
                raise CommandError(f"This invoice is {row.status}, not open.")
            self.answer(InvoiceShape.of(row), as_json=as_json)
