"""/v1/plans, /v1/invoices and /v1/billing: what may be bought, what was invoiced, and the way to Stripe's pages."""

from dataclasses import asdict
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.billing import checkout
from backend.billing.details import MOST, change_details, details_of
from backend.billing.invoice_document import document_of
from backend.billing.invoices import find_invoice, list_of
from backend.billing.models import Invoice
from backend.billing.pdf import write_pdf
from backend.billing.shapes import AddressShape, BillingDetailsShape, InvoiceDetailShape, InvoiceShape, PlanShape
from backend.billing.stripe.api import is_configured
from backend.domain.ids import Prefix
from backend.domain.money.plans import PlanName, plans
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema, whole_list
from backend.rest.strict import StrictSerializer, check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.permissions import HasScope
from backend.usage.accounts import account_of

BILLING: list[type[BasePermission]] = [IsTenant, HasScope("billing")]


class PlansView(APIView):
    permission_classes = BILLING

    @extend_schema(operation_id="plans_list", responses=page_schema("PlanList", PlanShape()))
    def get(self, request: Request) -> Response:
        """The plans, smallest first: price, spend cap, and how much of each thing they allow."""
        check_query(request.query_params, [])
        current = account_of(request.auth.tenant_id).plan
        sells = is_configured()
        data = [
            PlanShape.of(asdict(plan) | {"is_current": plan.name == current, "is_sold_here": sells and plan.is_sold})
            for plan in plans()
        ]
        return whole_list(data)


class InvoicesView(APIView):
    permission_classes = BILLING

    @extend_schema(
        operation_id="invoices_list", parameters=PAGE_PARAMETERS, responses=page_schema("InvoiceList", InvoiceShape())
    )
    def get(self, request: Request) -> Response:
        """All invoices, newest first."""
        rows = list_of(request.auth.tenant_id)
        return list_page(request, rows, prefix=Prefix.INVOICE, render=InvoiceShape.of)


class InvoiceView(APIView):
    permission_classes = BILLING

    @extend_schema(operation_id="invoices_get", responses=InvoiceDetailShape)
    def get(self, request: Request, invoice: str) -> Response:
        """One invoice with its lines."""
        check_query(request.query_params, [])
        return Response(InvoiceDetailShape.of(find_invoice(request.auth.tenant_id, invoice)))


class InvoicePdfView(APIView):
    permission_classes = BILLING

    @extend_schema(operation_id="invoices_pdf", responses={(200, "application/pdf"): OpenApiTypes.BINARY})
    def get(self, request: Request, invoice: str) -> HttpResponse:
        """One invoice as a PDF, with what it was for by compile and by deployment. The same bytes each time."""
        check_query(request.query_params, [])
        return pdf_response(find_invoice(request.auth.tenant_id, invoice))


def pdf_response(invoice: Invoice) -> HttpResponse:
    """The file, for the API and the console. Raises Conflict (`invoice_not_final`)."""
    body = write_pdf(document_of(invoice), font=settings.KOLM_INVOICE_FONT)
    response = HttpResponse(body, content_type="application/pdf")
    response["Content-Disposition"] = f'attachment; filename="{invoice.number}.pdf"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


class BillingDetailsChange(StrictSerializer):
    name = s.CharField(required=False, allow_blank=True, max_length=MOST["name"])
    address = s.CharField(required=False, allow_blank=True, max_length=MOST["address"])
    vat_id = s.CharField(required=False, allow_blank=True, max_length=MOST["vat_id"])


class BillingDetailsView(APIView):
    permission_classes = BILLING

    @extend_schema(operation_id="billing_details_get", responses=BillingDetailsShape)
    def get(self, request: Request) -> Response:
        """The customer that your invoices are made out to."""
        check_query(request.query_params, [])
        return Response(BillingDetailsShape.of(details_of(request.auth.tenant_id)))

    @extend_schema(operation_id="billing_details_change", request=BillingDetailsChange, responses=BillingDetailsShape)
    def patch(self, request: Request) -> Response:
        """Other details, for the invoices to come: one that was made keeps those that it was made with."""
        form = BillingDetailsChange(data=request.data)
        form.is_valid(raise_exception=True)
        row = change_details(request.auth.tenant_id, dict(form.validated_data), actor=request.auth.actor)
        return Response(BillingDetailsShape.of(row))


class CheckoutRequest(StrictSerializer):
    plan = s.ChoiceField([PlanName.PRO.value, PlanName.TEAM.value])


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class CheckoutView(APIView):
    """A view without a transaction: it asks Stripe, which no transaction waits for."""

    permission_classes = BILLING

    @extend_schema(operation_id="billing_checkout", request=CheckoutRequest, responses={201: AddressShape})
    def post(self, request: Request) -> Response:
        """The address of Stripe's page for buying a plan. The plan becomes active when Stripe reports the payment,
        within minutes. Usage from the next whole hour on is on Stripe's invoice."""
        form = CheckoutRequest(data=request.data)
        form.is_valid(raise_exception=True)
        tenant_id: UUID = request.auth.tenant_id
        url = checkout.start(tenant_id, form.validated_data["plan"], request.auth.actor)
        return Response(AddressShape.of({"object": "checkout", "url": url}), status=201)


class NothingRequest(StrictSerializer):
    """An empty body."""


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class PortalView(APIView):
    """A view without a transaction, like the checkout."""

    permission_classes = BILLING

    @extend_schema(operation_id="billing_portal", request=NothingRequest, responses={201: AddressShape})
    def post(self, request: Request) -> Response:
        """Stripe's page for your cards and invoices, and for giving up a plan at the end of its month."""
        NothingRequest(data=request.data).is_valid(raise_exception=True)
        url = checkout.open_portal(request.auth.tenant_id, request.auth.actor)
        return Response(AddressShape.of({"object": "portal", "url": url}), status=201)
