"""An ablation names the compile whose candidates it takes, and its arm."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0002_isolation")]

    operations = [
        migrations.AddField(model_name="compile", name="ablation_of", field=models.UUIDField(null=True)),
        migrations.AddField(
            model_name="compile",
            name="arm",
            field=models.CharField(choices=[("all", "all"), ("random", "random")], max_length=16, null=True),
        ),
        migrations.AddIndex(
            model_name="compile",
            index=models.Index(
                condition=models.Q(("ablation_of__isnull", False)),
                fields=["tenant_id", "ablation_of"],
                name="compile_ablations",
            ),
        ),
        migrations.AddConstraint(
            model_name="compile",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ablation_of__isnull", True), ("arm__isnull", True)),
                    models.Q(("ablation_of__isnull", False), ("arm__isnull", False)),
                    _connector="OR",
                ),
                name="compile_ablation_has_arm",
            ),
        ),
    ]
