"""A name for an upload, under which a spec may name it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0023_step_queue")]

    operations = [
        migrations.AddField(
            model_name="upload", name="name", field=models.CharField(blank=True, default="", max_length=100)
        ),
        migrations.AddIndex(
            model_name="upload",
            index=models.Index(fields=["tenant_id", "purpose", "name", "created_at"], name="upload_by_name"),
        ),
    ]
