"""The label votes on draft picks and fresh picks, by slice; and the controls of audits, which ask in other words."""

from django.db import migrations, models

COUNTS = ("n_audit_negatives", "n_audit_negatives_accepted", "n_audit_positives", "n_audit_positives_accepted")


class Migration(migrations.Migration):
    dependencies = [("drafts", "0010_kinship")]

    operations = [
        migrations.AddField(
            model_name="calibration",
            name="label_votes",
            field=models.JSONField(db_default=[], default=list),
        ),
        *(migrations.AddField("calibration", name, models.IntegerField(db_default=0, default=0)) for name in COUNTS),
    ]
