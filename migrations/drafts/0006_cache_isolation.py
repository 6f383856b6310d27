"""Row-level security on the cache's tables; what is a log cannot be changed; the parts of a table have no door of their
own, to the owner neither. Expired rows may be deleted by a function that can do nothing else."""

from django.db import migrations

from backend.tenants.isolation import append_only_sql, rls_policy_sql

TABLES = (
    "familykey",
    "scope",
    "source",
    "draft",
    "labeldraft",
    "offer",
    "verdict",
    "outcome",
    "calibration",
    "preview",
)
LOGS = ("offer", "verdict", "outcome")
EXPIRING = ("labeldraft", "draft", "source")  # drafts before their sources

PARTS_CLOSED = """
    DO $$ DECLARE part regclass; BEGIN
        FOR part IN SELECT inhrelid::regclass FROM pg_inherits
            WHERE inhparent IN ('drafts_source'::regclass, 'drafts_draft'::regclass, 'drafts_verdict'::regclass)
        LOOP
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', part);
            EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', part);
        END LOOP;
    END $$;
"""

# The sweeper serves all tenants, so it runs as the owner, whom these policies let see and delete expired rows alone. It
# names its tables' schema: what a caller makes in pg_temp, with a trigger on it, would otherwise run as the owner.
SWEEP = (
    "".join(f"ALTER POLICY tenant ON drafts_{table} TO kolm_app;" for table in (*EXPIRING, "preview"))
    + "".join(
        f"""
        CREATE POLICY sweep_see ON drafts_{table} FOR SELECT TO kolm_owner USING (expires_at < now());
        CREATE POLICY sweep ON drafts_{table} FOR DELETE TO kolm_owner USING (expires_at < now());
        """
        for table in EXPIRING
    )
    + """
    CREATE POLICY sweep_see ON drafts_preview FOR SELECT TO kolm_owner USING (created_at < now() - interval '1 day');
    CREATE POLICY sweep ON drafts_preview FOR DELETE TO kolm_owner USING (created_at < now() - interval '1 day');
    CREATE FUNCTION kolm_sweep_drafts(most integer) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
    DECLARE swept bigint := 0; n bigint; name text;
    BEGIN
        FOREACH name IN ARRAY ARRAY['drafts_labeldraft', 'drafts_draft', 'drafts_source'] LOOP
            EXECUTE format('DELETE FROM public.%I WHERE (tenant_id, id) IN'
                ' (SELECT tenant_id, id FROM public.%I WHERE expires_at < now() ORDER BY expires_at LIMIT $1)', name, name)
                USING most;
            GET DIAGNOSTICS n = ROW_COUNT;
            swept := swept + n;
        END LOOP;
        DELETE FROM public.drafts_preview WHERE created_at < now() - interval '1 day';
        GET DIAGNOSTICS n = ROW_COUNT;
        RETURN swept + n;
    END $$;
    REVOKE ALL ON FUNCTION kolm_sweep_drafts(integer) FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION kolm_sweep_drafts(integer) TO kolm_app;
    """
)
NO_SWEEP = "DROP FUNCTION kolm_sweep_drafts(integer);" + "".join(
    f"DROP POLICY sweep ON drafts_{table}; DROP POLICY sweep_see ON drafts_{table};"
    f"ALTER POLICY tenant ON drafts_{table} TO PUBLIC;"
    for table in (*EXPIRING, "preview")
)


class Migration(migrations.Migration):
    dependencies = [("drafts", "0005_partitions"), ("tenants", "0002_isolation")]

    operations = [
        *(migrations.RunSQL(*rls_policy_sql(f"drafts_{table}")) for table in TABLES),
        *(migrations.RunSQL(*append_only_sql(f"drafts_{table}")) for table in LOGS),
        migrations.RunSQL(PARTS_CLOSED, migrations.RunSQL.noop),
        migrations.RunSQL(SWEEP, NO_SWEEP),
    ]
