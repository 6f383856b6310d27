"""Row-level security of allowances."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql


class Migration(migrations.Migration):
    dependencies = [("usage", "0005_allowances")]

    operations = [migrations.RunSQL(*rls_policy_sql("usage_allowance"))]
