"""Row-level security of what teachers answered to a preflight."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql


class Migration(migrations.Migration):
    dependencies = [("compiles", "0015_preflight")]

    operations = [migrations.RunSQL(*rls_policy_sql("compiles_teachercheck"))]
