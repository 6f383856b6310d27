"""Addresses of the console's account pages: the team, its settings, account security."""

from django.urls import URLPattern, path

from backend.console.account import audit, security, settings, team, welcome

urlpatterns: list[URLPattern] = [
    path("welcome", welcome.welcome, name="welcome"),
    path("invitations/<str:token>", welcome.invitation, name="invitation"),
    path("switch", welcome.switch_tenant, name="switch_tenant"),
    path("security", security.security, name="security"),
    path("team", team.team_page, name="team"),
    path("team/invite", team.invite, name="team_invite"),
    path("team/invitations/<str:invitation>/revoke", team.revoke_invitation, name="invitation_revoke"),
    path("team/members/<str:member>/role", team.change_role, name="member_role"),
    path("team/members/<str:member>/remove", team.remove_member, name="member_remove"),
    path("team/<str:tenant>/leave", team.leave, name="team_leave"),
    path("audit", audit.audit_page, name="audit"),
    path("audit/verify", audit.verify_audit, name="audit_verify"),
    path("audit/export", audit.export_audit, name="audit_export"),
    path("settings", settings.settings_page, name="settings"),
    path("settings/name", settings.rename, name="settings_name"),
    path("settings/retention", settings.change_retention, name="settings_retention"),
    path("settings/log-in", settings.change_log_in, name="settings_log_in"),
    path("settings/teacher_keys", settings.store_teacher_key, name="teacher_key_store"),
    path("settings/teacher_keys/<str:key>/delete", settings.delete_teacher_key, name="teacher_key_delete"),
    path("settings/teacher_keys/<str:key>/test", settings.test_teacher_key, name="teacher_key_test"),
    path("settings/export", settings.export_all, name="settings_export"),
    path("settings/delete", settings.delete_tenant, name="settings_delete"),
    path("deletions/<str:erasure>", settings.deletion_receipt, name="deletion"),
]
