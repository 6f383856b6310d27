"""The oldest waiting job of each tenant, by one look in the index a tenant."""

from django.db import migrations, models

IS_QUEUED = models.Q(status="queued")


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0014_places_shared")]

    operations = [
        migrations.AddIndex(
            "runnerjob",
            models.Index(fields=["tenant_id", "created_at", "id"], name="runner_job_heads", condition=IS_QUEUED),
        ),
        migrations.AddIndex(
            "runnerjob",
            models.Index(
                fields=["kind"], name="runner_job_exhausted", condition=IS_QUEUED & models.Q(attempts_in_vain__gte=4)
            ),
        ),
    ]
