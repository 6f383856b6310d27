"""Addresses of the console's money pages."""

from django.urls import URLPattern, path

from backend.console.money import bills, budgets, invoices, ledger, plan

urlpatterns: list[URLPattern] = [
    path("bills", bills.bills, name="bills"),
    path("bills/", plan.came_back, name="bills_back"),
    path("bills/usage.csv", bills.usage_csv, name="usage_csv"),
    path("bills/ledger", ledger.ledger, name="bill_ledger"),
    path("bills/invoices/<str:invoice>", invoices.invoice, name="invoice"),
    path("bills/invoices/<str:invoice>/pdf", invoices.invoice_pdf, name="invoice_pdf"),
    path("bills/details", invoices.billing_details, name="billing_details"),
    path("bills/details/change", invoices.change_billing_details, name="billing_details_change"),
    path("budgets", budgets.budgets, name="budgets"),
    path("budgets/create", budgets.create, name="budget_create"),
    path("budgets/cap", budgets.cap, name="cap_change"),
    path("budgets/<str:budget>/change", budgets.change, name="budget_change"),
    path("budgets/<str:budget>/delete", budgets.delete, name="budget_delete"),
    path("plan", plan.plan_page, name="plan"),
    path("plan/checkout", plan.checkout, name="plan_checkout"),
    path("plan/portal", plan.portal, name="plan_portal"),
]
