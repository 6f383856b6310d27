"""An arm more of ablations: the plan that is fixed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0018_label_rounds")]

    operations = [
        migrations.AlterField(
            model_name="compile",
            name="arm",
            field=models.CharField(
                choices=[("all", "all"), ("random", "random"), ("fixed", "fixed")], max_length=16, null=True
            ),
        ),
    ]
