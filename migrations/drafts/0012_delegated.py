"""Drafts that another model judges in the teacher's place, and which one the evidence is about."""

from django.db import migrations, models

STRATEGIES = [(name, name) for name in ("engine", "logprobs", "judge", "delegate", "gate", "repeat")]
CERTIFICATES = [(name, name) for name in ("exact", "bounded", "typical", "judged", "delegated", "gated")]


class Migration(migrations.Migration):
    dependencies = [("drafts", "0011_label_votes")]

    operations = [
        migrations.AlterField("offer", "strategy", models.CharField(blank=True, choices=STRATEGIES, max_length=16)),
        migrations.AlterField("verdict", "strategy", models.CharField(choices=STRATEGIES, max_length=16)),
        migrations.AlterField(
            "verdict", "certificate", models.CharField(blank=True, choices=CERTIFICATES, max_length=16)
        ),
        migrations.AlterField("calibration", "strategy", models.CharField(choices=STRATEGIES, max_length=16)),
        migrations.AddField(
            "calibration", "judge", models.CharField(blank=True, db_default="", default="", max_length=200)
        ),
        migrations.AddField("calibration", "begun_at", models.DateTimeField(null=True)),
    ]
