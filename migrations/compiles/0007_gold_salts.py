"""The salt of a name's gold split is written down: it was derived from the sealing key, which can be changed now."""

from django.db import migrations, models

import backend.rest.new_ids


class Migration(migrations.Migration):
    dependencies = [("compiles", "0006_generative")]

    operations = [
        migrations.CreateModel(
            name="GoldSalt",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("sealed", models.BinaryField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("tenant_id", "name"), name="gold_salt_once")],
            },
        ),
    ]
