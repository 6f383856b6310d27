"""Cost tags of deployments."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("serving", "0008_pack_reports_isolation")]

    operations = [
        migrations.AddField("deployment", "tags", models.JSONField(default=dict, db_default={})),
    ]
