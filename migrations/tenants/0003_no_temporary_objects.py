"""Nobody but the owner makes temporary tables or functions. A temporary table takes the place of a table of its name for
as long as its session lives, and sessions are pooled: what injected SQL leaves there would catch the next tenant's rows
without row-level security."""

from django.db import migrations

WORD = "DO $$ BEGIN EXECUTE format('{} TEMPORARY ON DATABASE %I {} PUBLIC', current_database()); END $$"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_isolation")]

    operations = [migrations.RunSQL(WORD.format("REVOKE", "FROM"), WORD.format("GRANT", "TO"))]
