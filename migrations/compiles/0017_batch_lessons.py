"""The lessons by which the requests of a teacher batch were made, and those of their refusals; null before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0016_preflight_isolation")]

    operations = [migrations.AddField(model_name="teacherbatch", name="lessons", field=models.JSONField(null=True))]
