"""The wall around the audit log, invitations and a team's settings. An invitation is looked up before its tenant is
known: a transaction that names the hash of its token sees that row and no other."""

from django.db import migrations

from backend.tenants.isolation import append_only_sql, rls_policy_sql, shared_table_sql

INVITATION_POLICIES = """
    ALTER TABLE tenants_invitation ENABLE ROW LEVEL SECURITY;
    ALTER TABLE tenants_invitation FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_or_presented_hash ON tenants_invitation FOR SELECT USING (
        CASE WHEN coalesce(current_setting('app.invitation_hash', true), '') <> ''
             THEN token_hash = current_setting('app.invitation_hash')
             ELSE tenant_id = (SELECT kolm_tenant()) END
    );
    CREATE POLICY tenant_inserts ON tenants_invitation FOR INSERT WITH CHECK (tenant_id = (SELECT kolm_tenant()));
    CREATE POLICY tenant_updates ON tenants_invitation FOR UPDATE
        USING (tenant_id = (SELECT kolm_tenant())) WITH CHECK (tenant_id = (SELECT kolm_tenant()));
    CREATE POLICY tenant_deletes ON tenants_invitation FOR DELETE USING (tenant_id = (SELECT kolm_tenant()));
    GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_invitation TO kolm_app;
"""
NO_INVITATION_POLICIES = """
    REVOKE ALL ON tenants_invitation FROM kolm_app;
    DROP POLICY tenant_or_presented_hash ON tenants_invitation;
    DROP POLICY tenant_inserts ON tenants_invitation;
    DROP POLICY tenant_updates ON tenants_invitation;
    DROP POLICY tenant_deletes ON tenants_invitation;
    ALTER TABLE tenants_invitation NO FORCE ROW LEVEL SECURITY;
    ALTER TABLE tenants_invitation DISABLE ROW LEVEL SECURITY;
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_team")]

    operations = [
        migrations.RunSQL(*rls_policy_sql("tenants_auditentry")),
        migrations.RunSQL(*append_only_sql("tenants_auditentry")),
        migrations.RunSQL(*rls_policy_sql("tenants_audithead")),
        migrations.RunSQL(*rls_policy_sql("tenants_teamsettings")),
        migrations.RunSQL(INVITATION_POLICIES, NO_INVITATION_POLICIES),
        migrations.RunSQL(*shared_table_sql("tenants_retentiondue")),
        migrations.RunSQL(*shared_table_sql("tenants_erasure")),
    ]
