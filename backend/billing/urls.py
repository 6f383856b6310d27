"""The addresses of billing."""

from django.urls import path

from backend.billing import api, stripe_events

urlpatterns = [
    path("v1/plans", api.PlansView.as_view()),
    path("v1/billing/checkout", api.CheckoutView.as_view()),
    path("v1/billing/portal", api.PortalView.as_view()),
    path("v1/invoices", api.InvoicesView.as_view()),
    path("v1/invoices/<str:invoice>", api.InvoiceView.as_view()),
    path("v1/invoices/<str:invoice>/pdf", api.InvoicePdfView.as_view()),
    path("v1/billing/details", api.BillingDetailsView.as_view()),
    path("v1/stripe/webhook", stripe_events.webhook),
]
