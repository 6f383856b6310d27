"""Runners as they report themselves, and the job that looks at a base."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runner_jobs", "0006_attempts_in_vain"),
    ]

    operations = [
        migrations.CreateModel(
            name="Runner",
            fields=[
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("report", models.JSONField()),
                ("seen_at", models.DateTimeField()),
            ],
        ),
        migrations.AlterField(
            model_name="runnerjob",
            name="kind",
            field=models.CharField(
                choices=[
                    ("check_base", "check_base"),
                    ("distill", "distill"),
                    ("distill_causal", "distill_causal"),
                    ("evaluate", "evaluate"),
                    ("evaluate_causal", "evaluate_causal"),
                    ("infer", "infer"),
                    ("pack_recipes", "pack_recipes"),
                    ("select", "select"),
                ],
                max_length=16,
            ),
        ),
    ]
