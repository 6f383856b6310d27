from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0009_older_gold_salts")]

    operations = [
        migrations.AddField(
            model_name="compilelease",
            name="away_since",
            field=models.DateTimeField(null=True),
        ),
    ]
