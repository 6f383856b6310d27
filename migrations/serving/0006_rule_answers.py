from django.db import migrations, models


class Migration(migrations.Migration):
    """Requests that a rule of the artifact answered."""

    dependencies = [("serving", "0005_playground_answers")]

    operations = [
        migrations.AddField(model_name="deploymenthour", name="n_rule", field=models.BigIntegerField(default=0)),
    ]
