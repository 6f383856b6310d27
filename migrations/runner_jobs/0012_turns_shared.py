"""Runners serve all tenants: whose turn it is follows from ids and times, without row-level security."""

from django.db import migrations

from backend.tenants.isolation import shared_table_sql


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0011_fair_turns")]

    operations = [migrations.RunSQL(*shared_table_sql("runner_jobs_runnerturn"))]
