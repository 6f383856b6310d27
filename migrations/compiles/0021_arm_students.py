"""Two arms more of ablations: the students."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0020_label_logprobs")]

    operations = [
        migrations.AlterField(
            model_name="compile",
            name="arm",
            field=models.CharField(
                choices=[(arm, arm) for arm in ("all", "random", "fixed", "adapter", "frozen")],
                max_length=16,
                null=True,
            ),
        ),
    ]
