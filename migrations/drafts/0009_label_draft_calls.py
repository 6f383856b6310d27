"""How many calls gave the answers of a label draft."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("drafts", "0008_large_scopes")]

    operations = [
        migrations.AddField(
            model_name="labeldraft",
            name="n_calls",
            field=models.IntegerField(default=0, db_default=0),
        ),
    ]
