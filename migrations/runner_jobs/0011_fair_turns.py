from django.db import migrations, models

import backend.rest.new_ids


def nullable_time() -> models.DateTimeField:
    return models.DateTimeField(null=True)


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0010_span_jobs")]

    operations = [
        migrations.AddField("runnerjob", "weight", models.IntegerField(default=1, db_default=1)),
        migrations.AddField("runnerjob", "queued_at", nullable_time()),
        migrations.AddField("runnerjob", "ran_s", models.FloatField(default=0.0, db_default=0.0)),
        migrations.AddField("runnerjob", "left_s", models.FloatField(null=True)),
        migrations.AddField("runnerjob", "left_at", nullable_time()),
        migrations.AddField("runnerjob", "preempt_asked_at", nullable_time()),
        migrations.AddField("runnerjob", "shown_place", models.JSONField(null=True)),
        migrations.CreateModel(
            name="RunnerTurn",
            fields=[
                ("id", models.UUIDField(default=backend.rest.new_ids.new_uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
            ],
            options={"indexes": [models.Index(fields=["ended_at"], name="runner_turn_lately")]},
        ),
    ]
