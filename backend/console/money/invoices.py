"""One invoice, for reading and for printing."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from backend.billing.models import Invoice, InvoiceLine
from backend.console.access import ConsoleRequest, page
from backend.console.rows_and_forms import own_row
from backend.domain.ids import Prefix
from backend.domain.money.plans import plan
from backend.domain.roles import Permission

MICROUSD_PER_CENT = 10_000


@require_GET
@page(Permission.BILLS_READ)
def invoice(request: ConsoleRequest, invoice: str) -> HttpResponse:
    row = own_row(Invoice, request.team_session.tenant_id, Prefix.INVOICE, invoice)
    lines = InvoiceLine.objects.of_tenant(row.tenant_id).filter(invoice_id=row.id).order_by("position")
    money = {name: getattr(row, f"{name}_cents") * MICROUSD_PER_CENT for name in ("subtotal", "credit", "tax", "total")}
    context = {
        "row": row,
        "public_id": invoice,
        "plan": plan(row.plan),
        "lines": [(line, line.amount_cents * MICROUSD_PER_CENT) for line in lines],
        "money": money,
        "month": f"{row.period_start:%Y-%m}",
        "path": f"/v1/invoices/{invoice}",
    }
    return render(request, "console/bills/invoice.html", context)
