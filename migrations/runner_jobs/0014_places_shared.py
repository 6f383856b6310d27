"""The places are shown by upkeep, to the owners of all waiting jobs: ids, counts and times, without row-level
security."""

from django.db import migrations

from backend.tenants.isolation import shared_table_sql


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0013_runner_places")]

    operations = [migrations.RunSQL(*shared_table_sql("runner_jobs_runnerplace"))]
