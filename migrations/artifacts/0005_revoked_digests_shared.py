"""The digests of revoked artifacts are read for all tenants: a server is told what to drop."""

from django.db import migrations

from backend.tenants.isolation import shared_table_sql


class Migration(migrations.Migration):
    dependencies = [("artifacts", "0004_revoked_digests")]

    operations = [migrations.RunSQL(*shared_table_sql("artifacts_revokeddigest"))]
