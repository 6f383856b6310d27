from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0005_provider_bill")]

    operations = [
        migrations.AddField(
            model_name="candidate",
            name="answer",
            field=models.TextField(blank=True, default=""),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="steprun",
            name="trials",
            field=models.JSONField(default=list),
        ),
    ]
