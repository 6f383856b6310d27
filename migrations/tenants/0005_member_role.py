"""Members have roles. Who was a member before roles were is an owner."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0004_log_in")]

    operations = [
        migrations.AddField(
            model_name="member",
            name="role",
            field=models.CharField(
                choices=[
                    ("owner", "owner"),
                    ("admin", "admin"),
                    ("developer", "developer"),
                    ("billing", "billing"),
                    ("viewer", "viewer"),
                ],
                default="owner",
                max_length=16,
            ),
        ),
    ]
