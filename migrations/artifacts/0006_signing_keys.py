"""The documents of signing keys: what the keyring publishes, in the place of a file's modification time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("artifacts", "0005_revoked_digests_shared")]

    operations = [
        migrations.CreateModel(
            name="SigningKey",
            fields=[
                ("keyid", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("public_key", models.BinaryField()),
                ("not_before", models.DateTimeField()),
                ("not_after", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
