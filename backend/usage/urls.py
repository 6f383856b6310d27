"""The addresses of money. A compile's bill hangs on the compile."""

from django.urls import path

from backend.usage import api

urlpatterns = [
    path("v1/account", api.AccountView.as_view()),
    path("v1/budgets", api.BudgetsView.as_view()),
    path("v1/budgets/<str:budget>", api.BudgetView.as_view()),
    path("v1/usage", api.UsageReportView.as_view()),
    path("v1/usage.csv", api.UsageCsvView.as_view()),
    path("v1/bills/current", api.CurrentBillView.as_view()),
    path("v1/bills/groups", api.BillGroupsView.as_view()),
    path("v1/bills/forecast", api.ForecastView.as_view()),
]
