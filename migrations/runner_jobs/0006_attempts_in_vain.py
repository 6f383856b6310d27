from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runner_jobs", "0005_pack_recipes_jobs")]

    operations = [
        migrations.AddField(
            model_name="runnerjob",
            name="attempts_in_vain",
            field=models.IntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="runnerjob",
            name="checkpoint_step",
            field=models.IntegerField(db_default=0, default=0),
        ),
    ]
