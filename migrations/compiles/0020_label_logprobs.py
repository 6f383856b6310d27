"""The teacher's own log-probs of the labels, beside its votes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compiles", "0019_arm_fixed")]

    operations = [
        migrations.AddField(model_name="candidate", name="label_logprobs", field=models.JSONField(null=True)),
    ]
