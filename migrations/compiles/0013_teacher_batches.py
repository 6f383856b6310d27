"""Batches at a teacher's vendor, the status of a compile that waits for one, and row-level security of the new table.

The table has no foreign key, so that its policy may come in the same migration.
"""

from django.db import migrations, models

import backend.rest.new_ids
from backend.tenants.isolation import rls_policy_sql

STATUSES = (
    *("queued", "running", "awaiting_batch", "canceling"),
    *("succeeded", "gate_failed", "failed", "canceled", "expired"),
)


class Migration(migrations.Migration):
    dependencies = [("compiles", "0012_endpoint_lessons_isolation")]

    operations = [
        migrations.AlterField(
            model_name="compile",
            name="status",
            field=models.CharField(max_length=16, choices=[(name, name) for name in STATUSES], default="queued"),
        ),
        migrations.AddField(model_name="teachercall", name="batch_id", field=models.UUIDField(null=True)),
        migrations.AddIndex(
            model_name="teachercall",
            index=models.Index(
                fields=["tenant_id", "batch_id"],
                condition=models.Q(("batch_id__isnull", False)),
                name="call_by_batch",
            ),
        ),
        migrations.CreateModel(
            name="TeacherBatch",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("compile_id", models.UUIDField()),
                ("step", models.CharField(max_length=32)),
                ("model", models.CharField(max_length=200)),
                ("state", models.CharField(default="planned", max_length=16)),
                ("file_sha256", models.CharField(max_length=64)),
                ("n_requests", models.IntegerField()),
                ("input_file", models.CharField(blank=True, max_length=200)),
                ("vendor_id", models.CharField(blank=True, max_length=200)),
                ("vendor_status", models.CharField(blank=True, max_length=32)),
                ("n_done", models.IntegerField(default=0)),
                ("n_failed", models.IntegerField(default=0)),
                ("n_answered", models.IntegerField(default=0)),
                ("reason", models.CharField(blank=True, max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("asked_for_at", models.DateTimeField(null=True)),
                ("submitted_at", models.DateTimeField(null=True)),
                ("cancel_asked_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant_id", "compile_id", "created_at"], name="teacher_batch_by_compile")
                ],
            },
        ),
        migrations.RunSQL(*rls_policy_sql("compiles_teacherbatch")),
    ]
