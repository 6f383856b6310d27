"""Runners serve all tenants: their reports have no row-level security."""

from django.db import migrations

from backend.tenants.isolation import shared_table_sql


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0007_runners")]

    operations = [migrations.RunSQL(*shared_table_sql("runner_jobs_runner"))]
