"""Cost tags of API keys."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0009_erasing")]

    operations = [
        migrations.AddField("apikey", "tags", models.JSONField(default=dict, db_default={})),
    ]
