"""What a usage fact was for: the deployment, the name of it or of the compile, and the cost tags of that moment. Facts
of before keep their compile; they have no name and no tags."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("usage", "0006_allowances_isolation")]

    operations = [
        migrations.AddField("usagefact", "deployment_id", models.UUIDField(null=True)),
        migrations.AddField(
            "usagefact", "subject", models.CharField(max_length=100, blank=True, default="", db_default="")
        ),
        migrations.AddField("usagefact", "tags", models.JSONField(default=dict, db_default={})),
    ]
