from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0004_drafts")]

    operations = [
        migrations.AddField(
            model_name="compile",
            name="provider_microusd",
            field=models.BigIntegerField(default=0),
        ),
    ]
