from django.db import migrations, models


class Migration(migrations.Migration):
    """What a teacher agrees on may be the answer of a json or text task, which is no label of 200 characters."""

    dependencies = [("serving", "0004_deployments_isolation")]

    operations = [
        migrations.AlterField(model_name="playgroundanswer", name="label", field=models.TextField(blank=True)),
    ]
