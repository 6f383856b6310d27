"""Row-level security of deployments, their append-only history, the servers' table, which is no tenant's, and a sweep
that can delete shadow answers that nobody compared within an hour, of all tenants, and nothing else."""

from django.db import migrations

from backend.tenants.isolation import append_only_sql, rls_policy_sql, shared_table_sql

OWNED = ("deployment", "deploymentrevision", "deploymenthour", "shadowanswer")

# It runs as the owner, whom these policies let see and delete old rows alone; its table is named with its schema.
SWEEP = """
    ALTER POLICY tenant ON serving_shadowanswer TO kolm_app;
    CREATE POLICY sweep_see ON serving_shadowanswer FOR SELECT TO kolm_owner
        USING (created_at < now() - interval '1 hour');
    CREATE POLICY sweep ON serving_shadowanswer FOR DELETE TO kolm_owner
        USING (created_at < now() - interval '1 hour');
    CREATE FUNCTION kolm_sweep_shadow() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
    DECLARE n bigint;
    BEGIN
        DELETE FROM public.serving_shadowanswer WHERE created_at < now() - interval '1 hour';
        GET DIAGNOSTICS n = ROW_COUNT;
        RETURN n;
    END $$;
    REVOKE ALL ON FUNCTION kolm_sweep_shadow() FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION kolm_sweep_shadow() TO kolm_app;
"""
NO_SWEEP = """
    DROP FUNCTION kolm_sweep_shadow();
    DROP POLICY sweep ON serving_shadowanswer;
    DROP POLICY sweep_see ON serving_shadowanswer;
    ALTER POLICY tenant ON serving_shadowanswer TO PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("serving", "0003_deployments"), ("tenants", "0009_erasing")]

    operations = [
        migrations.RunSQL(*shared_table_sql("serving_server")),
        *(migrations.RunSQL(*rls_policy_sql(f"serving_{table}")) for table in OWNED),
        migrations.RunSQL(*append_only_sql("serving_deploymentrevision")),
        migrations.RunSQL("REVOKE UPDATE ON serving_deploymentrevision FROM kolm_app", migrations.RunSQL.noop),
        migrations.RunSQL(SWEEP, NO_SWEEP),
    ]
