"""The seller and the customer of an invoice, as they were when it was made."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_billing_details_isolation")]

    operations = [
        migrations.AddField("invoice", "parties", models.JSONField(default=dict, db_default={})),
    ]
