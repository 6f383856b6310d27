"""Row-level security of the salts of gold splits."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql


class Migration(migrations.Migration):
    dependencies = [("compiles", "0007_gold_salts")]

    operations = [migrations.RunSQL(*rls_policy_sql("compiles_goldsalt"))]
