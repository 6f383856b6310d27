"""Row-level security of billing details."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_billing_details")]

    operations = [migrations.RunSQL(*rls_policy_sql("billing_billingdetails"))]
