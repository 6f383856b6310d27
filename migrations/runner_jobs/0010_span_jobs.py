from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runner_jobs", "0009_not_before"),
    ]

    operations = [
        migrations.AlterField(
            model_name="runnerjob",
            name="kind",
            field=models.CharField(
                choices=[
                    ("check_base", "check_base"),
                    ("distill", "distill"),
                    ("distill_causal", "distill_causal"),
                    ("distill_spans", "distill_spans"),
                    ("evaluate", "evaluate"),
                    ("evaluate_causal", "evaluate_causal"),
                    ("evaluate_spans", "evaluate_spans"),
                    ("infer", "infer"),
                    ("pack_recipes", "pack_recipes"),
                    ("select", "select"),
                ],
                max_length=16,
            ),
        ),
    ]
