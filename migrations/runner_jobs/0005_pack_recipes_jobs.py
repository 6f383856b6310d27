from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runner_jobs", "0004_causal_jobs"),
    ]

    operations = [
        migrations.AlterField(
            model_name="runnerjob",
            name="kind",
            field=models.CharField(
                choices=[
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
