"""Row-level security: every tenant sees its own rows, and nobody sees any without a tenant."""

from django.db import migrations

from backend.tenants.isolation import shared_table_sql


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0001_initial"), ("tenants", "0002_isolation")]

    operations = [
        migrations.RunSQL(*shared_table_sql("runner_jobs_runnerjob")),
    ]
