"""The addresses of tenants and API keys."""

from django.urls import path

from backend.tenants.api_keys.api import ApiKeysView, ApiKeyView, RevokeApiKeyView, TenantView
from backend.tenants.team.api import AuditLogView, InvitationsView, MembersView, MemberView, RevokeInvitationView

urlpatterns = [
    path("v1/tenant", TenantView.as_view()),
    path("v1/api_keys", ApiKeysView.as_view()),
    path("v1/api_keys/<str:key>", ApiKeyView.as_view()),
    path("v1/api_keys/<str:key>/revoke", RevokeApiKeyView.as_view()),
    path("v1/members", MembersView.as_view()),
    path("v1/members/<str:member>", MemberView.as_view()),
    path("v1/invitations", InvitationsView.as_view()),
    path("v1/invitations/<str:invitation>/revoke", RevokeInvitationView.as_view()),
    path("v1/audit_log", AuditLogView.as_view()),
]
