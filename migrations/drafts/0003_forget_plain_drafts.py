"""The first drafts go: their texts were not sealed and their vectors not rotated, and a cache fills again by itself."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql

FORWARD, REVERSE = rls_policy_sql("drafts_draft")


class Migration(migrations.Migration):
    dependencies = [("drafts", "0002_isolation")]

    operations = [
        migrations.RunSQL(REVERSE, FORWARD),
        migrations.DeleteModel(name="Draft"),
    ]
