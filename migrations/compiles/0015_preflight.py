"""The list that a compile begins with, and the last answers of teachers to a preflight."""

from django.db import migrations, models

import backend.rest.new_ids


class Migration(migrations.Migration):
    dependencies = [("compiles", "0014_reward")]

    operations = [
        migrations.AddField(model_name="compile", name="preflight", field=models.JSONField(null=True)),
        migrations.CreateModel(
            name="TeacherCheck",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("digest", models.CharField(max_length=64)),
                ("spec", models.JSONField(null=True)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("asked", "asked"),
                            ("passed", "passed"),
                            ("failed", "failed"),
                        ],
                        max_length=12,
                    ),
                ),
                ("lines", models.JSONField(default=list)),
                ("asked_at", models.DateTimeField()),
                ("answered_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("tenant_id", "digest"), name="teacher_check_once")],
            },
        ),
    ]
