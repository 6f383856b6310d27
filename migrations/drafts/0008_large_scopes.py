"""`index_large_scopes` runs as the owner, since only the owner builds an index. It may see which scopes there are, and
count the sources of the tenant that it signed itself a token for."""

from django.db import migrations

# The sweep reads as the owner too, with no tenant set; then kolm_tenant(), which would raise, is not asked.
SEE = """
    CREATE POLICY index_see ON drafts_scope FOR SELECT TO kolm_owner USING (true);
    CREATE POLICY index_count ON drafts_source FOR SELECT TO kolm_owner USING (
        CASE WHEN coalesce(current_setting('app.tenant', true), '') = '' THEN false
             ELSE tenant_id = (SELECT kolm_tenant()) END
    );
"""
SEE_NOT = """
    DROP POLICY index_see ON drafts_scope;
    DROP POLICY index_count ON drafts_source;
"""


class Migration(migrations.Migration):
    dependencies = [("drafts", "0007_bytes")]

    operations = [migrations.RunSQL(SEE, SEE_NOT)]
