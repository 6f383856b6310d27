"""What kind of slice a draft comes from, which drafts compete unverified, and at which price they were written."""

from django.db import migrations, models

KINSHIPS = [("slice", "slice"), ("label", "label"), ("other", "other")]


class Migration(migrations.Migration):
    dependencies = [("drafts", "0009_label_draft_calls")]

    operations = [
        migrations.AddField("source", "slice_mac", models.BinaryField(null=True)),
        migrations.AddField("source", "label_mac", models.BinaryField(null=True)),
        migrations.AddField(
            "source", "price_version", models.CharField(blank=True, db_default="", default="", max_length=64)
        ),
        migrations.AddIndex("source", models.Index(fields=["tenant_id", "scope", "slice_mac"], name="source_by_slice")),
        migrations.AddIndex("source", models.Index(fields=["tenant_id", "scope", "label_mac"], name="source_by_label")),
        migrations.AddField(
            "verdict",
            "kinship",
            models.CharField(choices=KINSHIPS, db_default="other", default="other", max_length=8),
        ),
        migrations.AddField("offer", "n_pooled", models.IntegerField(db_default=0, default=0)),
        migrations.AddField("offer", "n_avoided", models.IntegerField(db_default=0, default=0)),
    ]
