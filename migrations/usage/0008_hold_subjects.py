"""The name and the cost tags that the bookings of a compile carry, on its hold."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("usage", "0007_fact_subjects")]

    operations = [
        migrations.AddField("hold", "subject", models.CharField(max_length=100, blank=True, default="", db_default="")),
        migrations.AddField("hold", "tags", models.JSONField(default=dict, db_default={})),
    ]
