"""One arm more of ablations: the contrastive student."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0021_arm_students")]

    operations = [
        migrations.AlterField(
            model_name="compile",
            name="arm",
            field=models.CharField(
                choices=[(arm, arm) for arm in ("all", "random", "fixed", "adapter", "contrastive", "frozen")],
                max_length=16,
                null=True,
            ),
        ),
    ]
