from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0022_contrastive_arm")]

    operations = [
        migrations.AddField(model_name="steprun", name="queue", field=models.JSONField(null=True)),
    ]
