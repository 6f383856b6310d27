from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0008_runners_shared")]

    operations = [
        migrations.AddField(
            model_name="runnerjob",
            name="not_before",
            field=models.DateTimeField(null=True),
        ),
    ]
