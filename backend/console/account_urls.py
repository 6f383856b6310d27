"""Addresses of the console's account pages: the team, its settings, one's own log-in."""

from django.urls import URLPattern, path

from backend.console import account_audit, account_security, account_settings, account_team, account_welcome

urlpatterns: list[URLPattern] = [
    path("welcome", account_welcome.welcome, name="welcome"),
    path("invitations/<str:token>", account_welcome.invitation, name="invitation"),
    path("switch", account_welcome.switch_tenant, name="switch_tenant"),
    path("security", account_security.security, name="security"),
    path("team", account_team.team_page, name="team"),
    path("team/invite", account_team.invite, name="team_invite"),
    path("team/invitations/<str:invitation>/revoke", account_team.revoke_invitation, name="invitation_revoke"),
    path("team/members/<str:member>/role", account_team.change_role, name="member_role"),
    path("team/members/<str:member>/remove", account_team.remove_member, name="member_remove"),
    path("team/<str:tenant>/leave", account_team.leave, name="team_leave"),
    path("audit", account_audit.audit_page, name="audit"),
    path("audit/verify", account_audit.verify_audit, name="audit_verify"),
    path("audit/export", account_audit.export_audit, name="audit_export"),
    path("settings", account_settings.settings_page, name="settings"),
    path("settings/name", account_settings.rename, name="settings_name"),
    path("settings/retention", account_settings.change_retention, name="settings_retention"),
    path("settings/log-in", account_settings.change_log_in, name="settings_log_in"),
    path("settings/teacher_keys", account_settings.store_teacher_key, name="teacher_key_store"),
    path("settings/teacher_keys/<str:key>/delete", account_settings.delete_teacher_key, name="teacher_key_delete"),
    path("settings/teacher_keys/<str:key>/test", account_settings.test_teacher_key, name="teacher_key_test"),
    path("settings/export", account_settings.export_all, name="settings_export"),
    path("settings/delete", account_settings.delete_tenant, name="settings_delete"),
    path("deletions/<str:erasure>", account_settings.deletion_receipt, name="deletion"),
]
