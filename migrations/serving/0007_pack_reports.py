import django.utils.timezone
from django.db import migrations, models

import backend.rest.new_ids


class Migration(migrations.Migration):
    """What servers found out about recipe packs."""

    dependencies = [("serving", "0006_rule_answers")]

    operations = [
        migrations.CreateModel(
            name="PackReport",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("artifact_id", models.UUIDField()),
                ("artifact_sha256", models.CharField(max_length=64)),
                ("pack_sha256", models.CharField(max_length=64)),
                ("log", models.CharField(max_length=32)),
                ("n_answers", models.BigIntegerField()),
                ("n_tokens", models.BigIntegerField()),
                ("tried", models.JSONField()),
                ("missed", models.JSONField()),
                ("sealed", models.BinaryField(null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("told_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("tenant_id", "log"), name="pack_report_once")],
                "indexes": [
                    models.Index(fields=["tenant_id", "artifact_sha256", "told_at"], name="pack_report_by_artifact"),
                    models.Index(fields=["told_at"], name="pack_report_ttl"),
                ],
            },
        ),
    ]
