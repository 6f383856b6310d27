"""The label votes on draft picks and fresh picks, by slice."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("drafts", "0009_label_draft_calls")]

    operations = [
        migrations.AddField(
            model_name="calibration",
            name="label_votes",
            field=models.JSONField(db_default=[], default=list),
        ),
    ]
