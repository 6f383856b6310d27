from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("selections", "0002_isolation")]

    operations = [
        migrations.AddField(model_name="selection", name="api_key_id", field=models.UUIDField(null=True)),
    ]
