"""Row-level security: every tenant sees its own rows, and nobody sees any without a tenant. After the tables and not
with them, because the owner too is bound from here on, and adding a foreign key reads the table.
"""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql

# The row of a key is looked up before its tenant is known: a transaction that names the hash of a key sees that row and no other.
API_KEY_POLICIES = """
    ALTER TABLE tenants_apikey ENABLE ROW LEVEL SECURITY;
    ALTER TABLE tenants_apikey FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant_or_presented_hash ON tenants_apikey FOR SELECT USING (
        CASE WHEN coalesce(current_setting('app.key_hash', true), '') <> '' THEN key_hash =
        current_setting('app.key_hash')
             ELSE tenant_id = (SELECT kolm_tenant()) END
    );
    CREATE POLICY tenant_inserts ON tenants_apikey FOR INSERT WITH CHECK (tenant_id = (SELECT kolm_tenant()));
    CREATE POLICY tenant_updates ON tenants_apikey FOR UPDATE
        USING (tenant_id = (SELECT kolm_tenant())) WITH CHECK (tenant_id = (SELECT kolm_tenant()));
    CREATE POLICY tenant_deletes ON tenants_apikey FOR DELETE USING (tenant_id = (SELECT kolm_tenant()));
    GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_apikey TO kolm_app;
"""
NO_API_KEY_POLICIES = """
    REVOKE ALL ON tenants_apikey FROM kolm_app;
    DROP POLICY tenant_or_presented_hash ON tenants_apikey;
    DROP POLICY tenant_inserts ON tenants_apikey;
    DROP POLICY tenant_updates ON tenants_apikey;
    DROP POLICY tenant_deletes ON tenants_apikey;
    ALTER TABLE tenants_apikey NO FORCE ROW LEVEL SECURITY;
    ALTER TABLE tenants_apikey DISABLE ROW LEVEL SECURITY;
"""

# People are shared between tenants; what they may see is decided by their memberships.
USERS = "GRANT SELECT, INSERT, UPDATE ON auth_user TO kolm_app;"
NO_USERS = "REVOKE ALL ON auth_user FROM kolm_app;"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]

    operations = [
        migrations.RunSQL(*rls_policy_sql("tenants_tenant", column="id")),
        migrations.RunSQL(*rls_policy_sql("tenants_member")),
        migrations.RunSQL(*rls_policy_sql("tenants_idempotencykey")),
        migrations.RunSQL(API_KEY_POLICIES, NO_API_KEY_POLICIES),
        migrations.RunSQL(USERS, NO_USERS),
    ]
