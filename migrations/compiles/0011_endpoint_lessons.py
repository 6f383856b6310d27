"""What a teacher's endpoint refused is kept, and how much of a call's output was thought."""

from django.db import migrations, models

import backend.rest.new_ids


class Migration(migrations.Migration):
    dependencies = [("compiles", "0010_away_since")]

    operations = [
        migrations.CreateModel(
            name="EndpointLessons",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("endpoint", models.CharField(max_length=64)),
                ("model", models.CharField(max_length=200)),
                ("lessons", models.JSONField(default=list)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("tenant_id", "endpoint", "model"), name="endpoint_lessons_once")
                ],
            },
        ),
        migrations.AddField(
            model_name="teachercall",
            name="thought_tokens",
            field=models.IntegerField(db_default=0, default=0),
        ),
    ]
