"""Rounds of labelling: what was bought, and for what; the votes that a pick wants, and what was made of them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0017_batch_lessons")]

    operations = [
        migrations.AddField(model_name="steprun", name="purchases", field=models.JSONField(null=True)),
        migrations.AddField(model_name="candidate", name="known_answers", field=models.JSONField(null=True)),
        migrations.AddField(
            model_name="candidate", name="n_wanted", field=models.IntegerField(db_default=0, default=0)
        ),
        migrations.AddField(model_name="candidate", name="bought_in", field=models.IntegerField(null=True)),
        migrations.AddField(
            model_name="candidate",
            name="bought_for",
            field=models.CharField(blank=True, db_default="", default="", max_length=16),
        ),
        migrations.AddField(model_name="candidate", name="posterior", field=models.JSONField(null=True)),
    ]
