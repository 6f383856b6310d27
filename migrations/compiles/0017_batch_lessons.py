"""What the refusals of a teacher batch taught, until an answer confirms it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0016_preflight_isolation")]

    operations = [migrations.AddField(model_name="teacherbatch", name="lessons", field=models.JSONField(null=True))]
