"""The addresses of tenants and API keys."""

from django.urls import path

from backend.tenants.api import ApiKeysView, ApiKeyView, RevokeApiKeyView, TenantView

urlpatterns = [
    path("v1/tenant", TenantView.as_view()),
    path("v1/api_keys", ApiKeysView.as_view()),
    path("v1/api_keys/<str:key>", ApiKeyView.as_view()),
    path("v1/api_keys/<str:key>/revoke", RevokeApiKeyView.as_view()),
]
