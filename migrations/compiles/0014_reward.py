"""A candidate's reward: what a model said it is worth."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0013_teacher_batches")]

    operations = [migrations.AddField(model_name="candidate", name="reward", field=models.JSONField(null=True))]
