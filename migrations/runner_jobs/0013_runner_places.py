from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0012_turns_shared")]

    operations = [
        migrations.CreateModel(
            "RunnerPlace",
            fields=[
                ("job_id", models.UUIDField(primary_key=True, serialize=False)),
                ("words", models.CharField(max_length=200)),
                ("shown_at", models.DateTimeField()),
            ],
        ),
        migrations.RemoveField("runnerjob", "shown_place"),
    ]
