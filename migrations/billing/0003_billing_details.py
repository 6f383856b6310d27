"""Whom a tenant's invoices are made out to."""

from django.db import migrations, models

import backend.rest.new_ids


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_isolation")]

    operations = [
        migrations.CreateModel(
            name="BillingDetails",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(blank=True, max_length=200)),
                ("address", models.CharField(blank=True, max_length=500)),
                ("vat_id", models.CharField(blank=True, max_length=40)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=["tenant_id"], name="billing_details_once")],
            },
        ),
    ]
