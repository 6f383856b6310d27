"""One invoice, for reading, printing and as a file; and whom invoices are made out to."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from backend.billing.api import pdf_response
from backend.billing.details import MOST, change_details, details_of, seller
from backend.billing.models import BilledBy, Invoice, InvoiceLine
from backend.console.access import ConsoleRequest, page
from backend.console.rows_and_forms import own_row
from backend.domain.ids import Prefix
from backend.domain.money.plans import plan
from backend.domain.roles import Permission


@require_GET
@page(Permission.BILLS_READ)
def invoice(request: ConsoleRequest, invoice: str) -> HttpResponse:
    row = own_row(Invoice, request.team_session.tenant_id, Prefix.INVOICE, invoice)
    context = {
        "row": row,
        "public_id": invoice,
        "plan": plan(row.plan),
        "customer": row.parties.get("customer") or {"name": request.team_session.tenant_name},
        "lines": InvoiceLine.objects.of_tenant(row.tenant_id).filter(invoice_id=row.id).order_by("position"),
        "month": f"{row.period_start:%Y-%m}",
        "is_final": row.billed_by != BilledBy.STRIPE or row.stripe_settled_at is not None,
        "path": f"/v1/invoices/{invoice}",
    }
    return render(request, "console/bills/invoice.html", context)


@require_GET
@page(Permission.BILLS_READ)
def invoice_pdf(request: ConsoleRequest, invoice: str) -> HttpResponse:
    return pdf_response(own_row(Invoice, request.team_session.tenant_id, Prefix.INVOICE, invoice))


@require_GET
@page(Permission.BILLS_READ)
def billing_details(request: ConsoleRequest) -> HttpResponse:
    context = {
        "details": details_of(request.team_session.tenant_id),
        "most": MOST,
        "seller": seller(),
        "may_write": request.team_session.may(Permission.BILLS_WRITE),
    }
    return render(request, "console/bills/details.html", context)


@require_POST
@page(Permission.BILLS_WRITE)
def change_billing_details(request: ConsoleRequest) -> HttpResponse:
    changes = {name: request.POST.get(name, "") for name in MOST}
    change_details(request.team_session.tenant_id, changes, actor=request.team_session.actor)
    messages.success(request, "Invoices from now on are made out like this.")
    return redirect("console:billing_details")
