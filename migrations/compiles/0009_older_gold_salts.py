"""Every name that was compiled before gets the salt that it had, so that no later key moves an example to the other side
of its split."""

import hmac
from base64 import b64decode
from typing import Any

from django.conf import settings
from django.db import migrations

from backend.rest.new_ids import new_uuid7
from backend.tenants.sealing import seal

# The owner too is bound by the wall around tenants; it is lifted for these statements, in this transaction alone.
LIFTED = "ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"
BACK = "ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
TABLES = ("compiles_compile", "compiles_goldsalt")


def write_down(apps: Any, schema_editor: Any) -> None:
    key = b64decode(settings.KOLM_SEALING_KEY)
    with schema_editor.connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(LIFTED.format(table=table))
        cursor.execute("SELECT DISTINCT tenant_id, name FROM compiles_compile")
        for tenant_id, name in cursor.fetchall():
            salt = hmac.digest(key, f"gold-split/{tenant_id}/{name}".encode(), "sha256")
            cursor.execute(
                "INSERT INTO compiles_goldsalt (tenant_id, id, name, sealed) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                [tenant_id, new_uuid7(), name, seal(tenant_id, salt, purpose=b"gold_salt")],
            )
        for table in TABLES:
            cursor.execute(BACK.format(table=table))


class Migration(migrations.Migration):
    dependencies = [("compiles", "0008_gold_salts_isolation")]

    operations = [migrations.RunPython(write_down, migrations.RunPython.noop)]
