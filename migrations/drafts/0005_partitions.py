"""Sources, drafts and verdicts are hash-partitioned by tenant. Django made them plain; here each is made again in parts
while it is empty, with the same names of indexes and constraints, so that what Django does to them later works."""

from django.db import migrations

PARTS = 32


def partitioned(table: str, *indexes: str) -> str:
    """SQL that replaces an empty plain table."""
    made = ";\n".join(indexes)
    return f"""
        CREATE TABLE {table}_parts (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY HASH (tenant_id);
        DROP TABLE {table} CASCADE;
        ALTER TABLE {table}_parts RENAME TO {table};
        DO $$ BEGIN FOR part IN 0..{PARTS - 1} LOOP
            EXECUTE format('CREATE TABLE {table}_%s PARTITION OF {table} FOR VALUES WITH (MODULUS {PARTS}, REMAINDER %s)',
                           part, part);
        END LOOP; END $$;
        ALTER TABLE {table} ADD PRIMARY KEY (tenant_id, id);
        {made};
    """


SOURCES = partitioned(
    "drafts_source",
    "CREATE INDEX source_scope ON drafts_source (tenant_id, scope_id) INCLUDE (id, embedding)",
    "CREATE INDEX source_ttl ON drafts_source (expires_at)",
)
DRAFTS = partitioned(
    "drafts_draft",
    "ALTER TABLE drafts_draft ADD CONSTRAINT draft_text_once UNIQUE (tenant_id, source_id, text_mac)",
    "ALTER TABLE drafts_draft ADD CONSTRAINT draft_candidate_once UNIQUE (tenant_id, candidate_id)",
    "ALTER TABLE drafts_draft ADD CONSTRAINT draft_of_source FOREIGN KEY (tenant_id, source_id)"
    " REFERENCES drafts_source (tenant_id, id) ON DELETE CASCADE",
    "ALTER TABLE drafts_draft ALTER COLUMN text_sealed SET STORAGE EXTERNAL",  # cipher text does not compress
    "CREATE INDEX draft_by_source ON drafts_draft (tenant_id, source_id, state)",
    "CREATE INDEX draft_by_time ON drafts_draft (tenant_id, created_at, id)",
    "CREATE INDEX draft_ttl ON drafts_draft (expires_at)",
)
VERDICTS = partitioned(
    "drafts_verdict",
    "CREATE INDEX verdict_by_scope ON drafts_verdict (tenant_id, scope_id, strategy, id)",
)


# With the tenant in it, so that an insert cannot tell that another tenant has a row of some id.
KEYS = "".join(
    f"ALTER TABLE drafts_{table} DROP CONSTRAINT drafts_{table}_pkey; ALTER TABLE drafts_{table} ADD PRIMARY KEY (tenant_id, id);"
    for table in ("familykey", "scope", "labeldraft", "offer", "outcome", "calibration", "preview")
)


class Migration(migrations.Migration):
    dependencies = [("drafts", "0004_cache")]

    operations = [migrations.RunSQL(sql, migrations.RunSQL.noop) for sql in (SOURCES, DRAFTS, VERDICTS, KEYS)]
