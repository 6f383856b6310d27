"""Row-level security: every tenant sees its own rows, and nobody sees any without a tenant."""

from django.db import migrations

from backend.tenants.isolation import append_only_sql, rls_policy_sql


class Migration(migrations.Migration):
    dependencies = [("usage", "0001_initial"), ("tenants", "0002_isolation")]

    operations = [
        migrations.RunSQL(*rls_policy_sql("usage_usagefact")),
        migrations.RunSQL(*append_only_sql("usage_usagefact")),
    ]
