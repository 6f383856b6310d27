"""Row-level security of what endpoints taught."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql


class Migration(migrations.Migration):
    dependencies = [("compiles", "0011_endpoint_lessons")]

    operations = [migrations.RunSQL(*rls_policy_sql("compiles_endpointlessons"))]
