"""The learning curve of an upload's examples, measured once."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0024_upload_names")]

    operations = [migrations.AddField(model_name="upload", name="learning_curve", field=models.JSONField(null=True))]
